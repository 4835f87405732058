/* device.c: finds, queries and partitions devices, and reads their timers. Layer: calls. */
#include "calls.h"

#include <time.h>

enum { MAX_SUB_DEVICES = 4096 };

static const cl_device_type known_types = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM;

/* matches tests a device's type. CL_DEVICE_TYPE_ALL excludes custom devices. */
static int matches(cl_device_id d, cl_device_type asked, int first) {
	cl_device_type type = device_number(d, CL_DEVICE_TYPE);
	if (asked == CL_DEVICE_TYPE_ALL)
		return (type & CL_DEVICE_TYPE_CUSTOM) == 0;
	return (type & asked & ~(cl_device_type)CL_DEVICE_TYPE_DEFAULT) != 0 || (first && (asked & CL_DEVICE_TYPE_DEFAULT));
}

cl_int ob_clGetDeviceIDs(cl_platform_id platform, cl_device_type device_type, cl_uint num_entries, cl_device_id *devices, cl_uint *num_devices) {
	(void)platform;
	if (device_type != CL_DEVICE_TYPE_ALL && (device_type == 0 || device_type & ~known_types))
		return CL_INVALID_DEVICE_TYPE;
	if ((!devices && !num_devices) || (devices && num_entries == 0))
		return CL_INVALID_VALUE;
	cl_uint found = 0;
	int first = 1;
	struct link *link;
	FOR_LINKS(link, library.links) {
		if (matches(link->device, device_type, first)) {
			if (devices && found < num_entries)
				devices[found] = link->device;
			found++;
		}
		first = 0;
	}
	if (num_devices)
		*num_devices = found;
	return found ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}

/* query_worker queries parameters outside the snapshot: the driver's own extensions. */
static cl_int query_worker(cl_device_id d, cl_device_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	struct blob value = {NULL, 0};
	int32_t status = device_refusal(d, param_name);
	if (status != 0)
		return status;
	status = call_clGetDeviceInfo(d->link->session, d->o.id, param_name, &value);
	device_note_refusal(d, param_name, status);
	if (status == 0 && !fact_complete(OP_clGetDeviceInfo, param_name, &value))
		status = CL_OUT_OF_HOST_MEMORY;
	if (status == 0)
		status = info_answer(value.data, value.size, param_value_size, param_value, param_value_size_ret);
	free(value.data);
	return status;
}

cl_int ob_clGetDeviceInfo(cl_device_id d, cl_device_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	switch (param_name) {
	case CL_DEVICE_PLATFORM:
		INFO(cl_platform_id, library.platform);
	case CL_DEVICE_PARENT_DEVICE:
		INFO(cl_device_id, d->parent);
	case CL_DEVICE_REFERENCE_COUNT:
		INFO(cl_uint, d->parent ? atomic_load(&d->o.refs) : 1);
	case CL_DEVICE_AVAILABLE:
		if (session_dead(d->link->session))
			INFO(cl_bool, CL_FALSE);
	}
	int32_t status;
	size_t size;
	const void *value = facts_find(d->facts, OP_clGetDeviceInfo, d->o.id, 0, 0, param_name, &status, &size);
	if (!value)
		return query_worker(d, param_name, param_value_size, param_value, param_value_size_ret);
	return status != 0 ? status : info_answer(value, size, param_value_size, param_value, param_value_size_ret);
}

static cl_device_id sub_device_new(cl_device_id parent, uint64_t id, struct facts *facts, const struct blob *partition) {
	cl_device_id d = object_new_with_id(sizeof *d, KIND_DEVICE, parent->o.links, id, device_destroy);
	if (!d)
		return NULL;
	d->link = parent->link;
	d->parent = parent;
	object_hold(parent);
	d->facts = facts_hold(facts);
	blob_copy(&d->partition, partition->data, partition->size);
	return d;
}

static uint64_t list_length(const cl_device_partition_property *list) {
	uint64_t n = 0;
	/* A list of counts has a terminating zero of its own before the list's. */
	if (list[0] == CL_DEVICE_PARTITION_BY_COUNTS)
		for (n = 2; list[n - 1] != CL_DEVICE_PARTITION_BY_COUNTS_LIST_END; n++)
			;
	while (list[n] != 0)
		n++;
	return n;
}

/* new_sub_devices creates an object for each of the worker's sub-devices, since those that are not
 * returned must be released. */
static cl_int new_sub_devices(cl_device_id parent, uint64_t first, cl_uint count, struct facts *facts, const struct blob *partition, cl_device_id *all) {
	cl_int status = CL_SUCCESS;
	for (cl_uint i = 0; i < count; i++) {
		device_add_offers(facts, first + i);
		all[i] = sub_device_new(parent, first + i, facts, partition);
		if (!all[i])
			status = CL_OUT_OF_HOST_MEMORY;
	}
	return status;
}

static void drop_all(cl_device_id *all, cl_uint count) {
	for (cl_uint i = 0; i < count; i++)
		if (all[i])
			object_drop(all[i]);
}

static cl_int make_sub_devices(cl_device_id parent, const cl_device_partition_property *properties, cl_uint max, cl_uint num_devices, cl_device_id *out, cl_uint *count) {
	uint64_t first = new_ids(max), length = list_length(properties);
	struct blob blob = {NULL, 0}, partition = {(unsigned char *)properties, (length + 1) * sizeof *properties};
	cl_int status = call_clCreateSubDevices(parent->link->session, parent->o.id, (const uint64_t *)properties, length + 1, first, max, count, &blob);
	struct facts *facts = status == 0 ? facts_new(blob.data, blob.size) : NULL;
	cl_device_id *all = status == 0 && *count <= max ? calloc((size_t)*count + 1, sizeof *all) : NULL;
	free(blob.data);
	if (status == 0)
		status = facts && all ? new_sub_devices(parent, first, *count, facts, &partition, all) : CL_OUT_OF_HOST_MEMORY;
	facts_drop(facts);
	if (status == 0 && out && num_devices < *count)
		status = CL_INVALID_VALUE;
	if (status == 0 && out)
		memcpy(out, all, *count * sizeof *out);
	else if (all)
		drop_all(all, *count);
	free(all);
	return status;
}

cl_int ob_clCreateSubDevices(cl_device_id parent, const cl_device_partition_property *properties, cl_uint num_devices, cl_device_id *out_devices, cl_uint *num_devices_ret) {
	cl_uint max = (cl_uint)device_number(parent, CL_DEVICE_PARTITION_MAX_SUB_DEVICES), count = 0;
	if (!properties || (out_devices && num_devices == 0) || (!out_devices && !num_devices_ret))
		return CL_INVALID_VALUE;
	if (max == 0)
		max = (cl_uint)device_number(parent, CL_DEVICE_MAX_COMPUTE_UNITS);
	if (max == 0 || max > MAX_SUB_DEVICES) /* the worker reported this number */
		max = max ? MAX_SUB_DEVICES : 1;
	cl_int status = make_sub_devices(parent, properties, max, num_devices, out_devices, &count);
	if (status == 0 && num_devices_ret)
		*num_devices_ret = count;
	return status;
}

cl_int ob_clRetainDevice(cl_device_id d) { return d->parent ? object_retain(d) : CL_SUCCESS; }

cl_int ob_clReleaseDevice(cl_device_id d) { return d->parent ? object_release(d) : CL_SUCCESS; }

static cl_ulong program_clock(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (cl_ulong)ts.tv_sec * 1000000000u + (cl_ulong)ts.tv_nsec;
}

cl_int ob_clGetDeviceAndHostTimer(cl_device_id d, cl_ulong *device_timestamp, cl_ulong *host_timestamp) {
	uint64_t device, host;
	if (!device_timestamp || !host_timestamp)
		return CL_INVALID_VALUE;
	cl_int status = call_clGetDeviceAndHostTimer(d->link->session, d->o.id, &device, &host);
	if (status == 0)
		*device_timestamp = *host_timestamp = program_clock();
	return status;
}

cl_int ob_clGetHostTimer(cl_device_id d, cl_ulong *host_timestamp) {
	uint64_t host;
	if (!host_timestamp)
		return CL_INVALID_VALUE;
	cl_int status = call_clGetHostTimer(d->link->session, d->o.id, &host);
	if (status == 0)
		*host_timestamp = program_clock();
	return status;
}
