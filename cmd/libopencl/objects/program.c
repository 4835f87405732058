/* program.c: program objects and lists of devices. Layer: objects. */
#include "program.h"

void *program_fail(int32_t status, cl_int *errcode_ret) {
	if (errcode_ret)
		*errcode_ret = status;
	return NULL;
}

int32_t devices_check(cl_context context, cl_uint count, const cl_device_id *devices) {
	if (count == 0 || !devices)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < count; i++) {
		if (!device_in_context(context, devices[i]))
			return CL_INVALID_DEVICE;
		for (cl_uint j = 0; j < i; j++)
			if (devices[i] == devices[j])
				return CL_INVALID_DEVICE;
	}
	return 0;
}

uint64_t devices_links(cl_uint count, const cl_device_id *devices) {
	uint64_t links = 0;
	for (cl_uint i = 0; i < count; i++)
		links |= devices[i]->link->bit;
	return links;
}

uint64_t devices_on(const struct link *link, cl_uint count, const cl_device_id *devices, uint64_t *ids) {
	uint64_t n = 0;
	for (cl_uint i = 0; i < count; i++)
		if (devices[i]->link == link)
			ids[n++] = devices[i]->o.id;
	return n;
}

int program_has_device(cl_program p, cl_device_id device) {
	for (cl_uint i = 0; i < p->device_count; i++)
		if (p->devices[i] == device)
			return 1;
	return 0;
}

static void program_destroy(void *object) {
	cl_program p = object;
	for (size_t i = 0; i < LINKS; i++)
		outcome_drop(p->outcomes[i]);
	free(p->devices);
	free(p->source.data);
	free(p->il.data);
	free(p->binary_sizes);
	pthread_mutex_destroy(&p->lock);
	object_drop(p->context);
}


cl_program program_new(cl_context context, enum program_origin origin, cl_uint count, const cl_device_id *devices) {
	if (!devices)
		count = context->device_count, devices = context->devices;
	cl_device_id *own = malloc(count * sizeof *own);
	cl_program p = own ? object_new(sizeof *p, KIND_PROGRAM, devices_links(count, devices), program_destroy) : NULL;
	if (!p) {
		free(own);
		return NULL;
	}
	memcpy(own, devices, count * sizeof *own);
	p->devices = own;
	p->device_count = count;
	p->origin = origin;
	p->context = context;
	object_hold(context);
	pthread_mutex_init(&p->lock, NULL);
	return p;
}
