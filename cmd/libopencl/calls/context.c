/* context.c: creates and queries contexts. A context exists on each link that one of its devices
 * belongs to. Layer: calls. */
#include "calls.h"

#include <stdio.h>

static size_t properties_length(const cl_context_properties *p) {
	size_t n = 0;
	while (p && p[n] != 0)
		n += 2;
	return n;
}

static int is_duplicate(const cl_context_properties *p, size_t at) {
	for (size_t i = 0; i < at; i += 2)
		if (p[i] == p[at])
			return 1;
	return 0;
}

static cl_int check_properties(const cl_context_properties *p) {
	for (size_t i = 0; p && p[i] != 0; i += 2) {
		if (is_duplicate(p, i))
			return CL_INVALID_PROPERTY;
		switch (p[i]) {
		case CL_CONTEXT_PLATFORM:
			if (!api_valid((void *)p[i + 1], KIND_PLATFORM))
				return CL_INVALID_PLATFORM;
			break;
		case CL_CONTEXT_INTEROP_USER_SYNC:
			if (p[i + 1] != CL_TRUE && p[i + 1] != CL_FALSE)
				return CL_INVALID_PROPERTY;
			break;
		default:
			return CL_INVALID_PROPERTY;
		}
	}
	return CL_SUCCESS;
}

/* keep_devices stores the devices without duplicates, which the specification requires to
 * ignore. */
static int keep_devices(cl_context c, cl_uint count, const cl_device_id *devices) {
	c->devices = calloc(count, sizeof *c->devices);
	if (!c->devices)
		return 0;
	for (cl_uint i = 0; i < count; i++) {
		if (device_in_context(c, devices[i]))
			continue;
		object_hold(devices[i]);
		c->devices[c->device_count++] = devices[i];
		c->o.links |= devices[i]->link->bit;
	}
	return 1;
}

static void wire_properties(const cl_context_properties *p, size_t n, uint64_t *wire) {
	for (size_t i = 0; i < n; i += 2) {
		wire[i] = (uint64_t)p[i];
		wire[i + 1] = p[i] == CL_CONTEXT_PLATFORM ? ID_PLATFORM : (uint64_t)p[i + 1];
	}
	wire[n] = 0;
}

static cl_int send_to(struct link *link, cl_context c, const uint64_t *properties, size_t count) {
	uint64_t ids[c->device_count];
	size_t n = 0;
	for (cl_uint i = 0; i < c->device_count; i++)
		if (c->devices[i]->link == link)
			ids[n++] = c->devices[i]->o.id;
	return send_clCreateContext(link->session, NULL, properties, count, ids, n, c->notify != NULL, c->o.id);
}

/* send_create creates the context on its links. */
static cl_int send_create(cl_context c, const cl_context_properties *properties) {
	size_t n = properties_length(properties);
	uint64_t wire[n + 1];
	wire_properties(properties, n, wire);
	cl_int status = CL_SUCCESS;
	struct link *link;
	FOR_LINKS(link, c->o.links) {
		if (c->notify)
			session_listen(link->session); /* errors are also reported between calls */
		cl_int one = send_to(link, c, properties ? wire : NULL, n + 1);
		status = one ? one : status;
	}
	return status;
}

static cl_int context_make(cl_context c, const cl_context_properties *properties, cl_uint count, const cl_device_id *devices) {
	size_t size = properties ? (properties_length(properties) + 1) * sizeof *properties : 0;
	if (!keep_devices(c, count, devices) || !blob_copy(&c->properties, properties, size))
		return CL_OUT_OF_HOST_MEMORY;
	return send_create(c, properties);
}

static cl_context context_new(const cl_context_properties *properties, cl_uint count, const cl_device_id *devices, PFN_context notify, void *data, cl_int *errcode_ret) {
	cl_context c = object_new(sizeof *c, KIND_CONTEXT, 0, context_destroy);
	if (!c)
		return set_errcode(errcode_ret, CL_OUT_OF_HOST_MEMORY), NULL;
	pthread_mutex_init(&c->lock, NULL);
	c->notify = notify;
	c->notify_data = data;
	if (set_errcode(errcode_ret, context_make(c, properties, count, devices)) == CL_SUCCESS)
		return c;
	object_drop(c);
	return NULL;
}

cl_context ob_clCreateContext(const cl_context_properties *properties, cl_uint num_devices, const cl_device_id *devices, PFN_context notify, void *user_data, cl_int *errcode_ret) {
	cl_int status = check_properties(properties);
	if (status == CL_SUCCESS && (!devices || num_devices == 0 || (!notify && user_data)))
		status = CL_INVALID_VALUE;
	for (cl_uint i = 0; status == CL_SUCCESS && i < num_devices; i++)
		if (!api_valid(devices[i], KIND_DEVICE))
			status = CL_INVALID_DEVICE;
	if (status != CL_SUCCESS)
		return set_errcode(errcode_ret, status), NULL;
	return context_new(properties, num_devices, devices, notify, user_data, errcode_ret);
}

cl_context ob_clCreateContextFromType(const cl_context_properties *properties, cl_device_type device_type, PFN_context notify, void *user_data, cl_int *errcode_ret) {
	cl_device_id devices[LINKS];
	cl_uint count = 0;
	cl_int status = check_properties(properties);
	if (status == CL_SUCCESS && !notify && user_data)
		status = CL_INVALID_VALUE;
	if (status == CL_SUCCESS && !library.platform)
		status = CL_INVALID_PLATFORM;
	if (status == CL_SUCCESS)
		status = ob_clGetDeviceIDs(library.platform, device_type, LINKS, devices, &count);
	if (status != CL_SUCCESS)
		return set_errcode(errcode_ret, status), NULL;
	return context_new(properties, count, devices, notify, user_data, errcode_ret);
}

cl_int ob_clRetainContext(cl_context c) { return object_retain(c); }

cl_int ob_clReleaseContext(cl_context c) { return object_release(c); }

cl_int ob_clSetContextDestructorCallback(cl_context c, PFN_clSetContextDestructorCallback notify, void *user_data) {
	struct destructor *d = notify ? malloc(sizeof *d) : NULL;
	if (!d)
		return notify ? CL_OUT_OF_HOST_MEMORY : CL_INVALID_VALUE;
	d->call = (void (*)(void *, void *))notify;
	d->user_data = user_data;
	pthread_mutex_lock(&c->lock);
	d->next = c->destructors;
	c->destructors = d;
	pthread_mutex_unlock(&c->lock);
	return CL_SUCCESS;
}

cl_int ob_clGetContextInfo(cl_context c, cl_context_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	switch (param_name) {
	case CL_CONTEXT_REFERENCE_COUNT:
		INFO(cl_uint, atomic_load(&c->o.refs));
	case CL_CONTEXT_NUM_DEVICES:
		INFO(cl_uint, c->device_count);
	case CL_CONTEXT_DEVICES:
		return info_answer(c->devices, c->device_count * sizeof *c->devices, param_value_size, param_value, param_value_size_ret);
	case CL_CONTEXT_PROPERTIES:
		return info_answer(c->properties.data, c->properties.size, param_value_size, param_value, param_value_size_ret);
	}
	return CL_INVALID_VALUE;
}
