/* device.c: device objects and the known answers to queries of them. Layer: objects. */
#include "library.h"

void device_add_offers(struct facts *f, uint64_t id) {
	int32_t status;
	size_t size;
	cl_device_svm_capabilities svm;
	const void *value = facts_find(f, OP_svm_alloc, id, 0, 0, CL_DEVICE_SVM_CAPABILITIES, &status, &size);
	if (!value || status != 0 || size != sizeof svm)
		return;
	memcpy(&svm, value, sizeof svm);
	svm &= CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
	facts_replace(f, OP_clGetDeviceInfo, id, CL_DEVICE_SVM_CAPABILITIES, &svm, sizeof svm);
}

cl_device_id device_new_root(struct link *link) {
	cl_device_id d = object_new_with_id(sizeof *d, KIND_DEVICE, link->bit, ID_DEVICE, device_destroy);
	if (!d)
		return NULL;
	d->link = link;
	device_add_offers(link->facts, ID_DEVICE);
	d->facts = facts_hold(link->facts);
	return d;
}

/* A query that the driver has rejected as unknown, which does not change with time. */
struct refusal {
	struct refusal *next;
	cl_device_info param;
	int32_t status;
};

void device_destroy(void *object) {
	cl_device_id d = object;
	for (struct refusal *r = atomic_load(&d->refused), *next; r; r = next) {
		next = r->next;
		free(r);
	}
	facts_drop(d->facts);
	free(d->partition.data);
	if (d->parent)
		object_drop(d->parent);
}

static const void *fact(cl_device_id d, cl_device_info param, size_t *size) {
	int32_t status;
	const void *value = facts_find(d->facts, OP_clGetDeviceInfo, d->o.id, 0, 0, param, &status, size);
	return value && status == 0 ? value : NULL;
}

uint64_t device_number(cl_device_id d, cl_device_info param) {
	size_t size;
	uint64_t wide = 0;
	const void *value = fact(d, param, &size);
	if (value && (size == 4 || size == 8))
		memcpy(&wide, value, size); /* little-endian */
	return wide;
}

int32_t device_bool(cl_device_id d, cl_device_info param) { return device_number(d, param) != 0; }

int device_in_context(cl_context context, cl_device_id d) {
	for (cl_uint i = 0; i < context->device_count; i++)
		if (context->devices[i] == d)
			return 1;
	return 0;
}

int32_t device_refusal(cl_device_id d, cl_device_info param) {
	for (struct refusal *r = atomic_load(&d->refused); r; r = r->next)
		if (r->param == param)
			return r->status;
	return 0;
}

void device_note_refusal(cl_device_id d, cl_device_info param, int32_t status) {
	struct refusal *r = status == CL_INVALID_VALUE ? malloc(sizeof *r) : NULL;
	if (!r)
		return;
	*r = (struct refusal){atomic_load(&d->refused), param, status};
	while (!atomic_compare_exchange_weak(&d->refused, &r->next, r))
		;
}

int device_version(cl_device_id device) {
	int32_t status = 0;
	size_t size = 0;
	const char *text = facts_find(device->facts, OP_clGetDeviceInfo, device->o.id, 0, 0, CL_DEVICE_VERSION, &status, &size);
	return text && status == 0 && size > 10 && memcmp(text, "OpenCL ", 7) == 0 ? (text[7] - '0') * 10 + text[9] - '0' : 12;
}
