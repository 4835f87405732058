/* program.c: creates programs from source, binaries, built-in kernels and intermediate language.
 * Layer: calls. */
#include "calls.h"

#include <string.h>

/* A message holds 64 MiB, including its header and small fields. */
enum { LARGEST = (64 << 20) - 4096 };

static cl_program succeed(cl_program p, cl_int *errcode_ret) {
	if (errcode_ret)
		*errcode_ret = CL_SUCCESS;
	return p;
}

cl_int ob_clRetainProgram(cl_program p) { return object_retain(p); }

cl_int ob_clReleaseProgram(cl_program p) { return object_release(p); }

/* Drops a program that no link accepted. */
static cl_program discard(cl_program p, int32_t status, cl_int *errcode_ret) {
	object_release(p);
	return program_fail(status, errcode_ret);
}

static struct blob join(cl_uint count, const char **strings, const size_t *lengths) {
	size_t size = 0;
	for (cl_uint i = 0; i < count; i++)
		size += lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
	struct blob all = {malloc(size + 1), size + 1};
	unsigned char *end = all.data;
	for (cl_uint i = 0; end && i < count; i++)
		end = mempcpy(end, strings[i], lengths && lengths[i] ? lengths[i] : strlen(strings[i]));
	if (end)
		*end = 0;
	return all;
}

/* Absolute names in includes are rewritten in the text that is sent, since the headers have other
 * paths on the device's node. */
static int32_t send_source(cl_program p) {
	size_t size = p->source.size - 1;
	char *text = malloc(size + 1);
	if (!text)
		return CL_OUT_OF_HOST_MEMORY;
	memcpy(text, p->source.data, size);
	scan_relocate(text, size);
	if (size == 0)
		text[size++] = '\n'; /* drivers treat a length of 0 as a NUL-terminated text */
	struct link *l;
	int32_t status = 0;
	int sent = 0;
	FOR_LINKS(l, p->o.links) {
		int32_t s = send_clCreateProgramWithSource(l->session, NULL, p->context->o.id, text, size, p->o.id);
		sent += s == 0;
		status = s ? s : status;
	}
	free(text);
	return sent ? 0 : status; /* a dead link does not fail the others */
}

cl_program ob_clCreateProgramWithSource(cl_context context, cl_uint count, const char **strings, const size_t *lengths, cl_int *errcode_ret) {
	if (count == 0 || !strings)
		return program_fail(CL_INVALID_VALUE, errcode_ret);
	for (cl_uint i = 0; i < count; i++)
		if (!strings[i])
			return program_fail(CL_INVALID_VALUE, errcode_ret);
	struct blob source = join(count, strings, lengths);
	cl_program p = source.data && source.size <= LARGEST ? program_new(context, FROM_SOURCE, 0, NULL) : NULL;
	if (!p) {
		free(source.data);
		return program_fail(CL_OUT_OF_HOST_MEMORY, errcode_ret);
	}
	p->source = source;
	int32_t status = send_source(p);
	return status == 0 ? succeed(p, errcode_ret) : discard(p, status, errcode_ret);
}

/* Records the result of a creation on a link. The program exists there only if it succeeded. */
static int32_t store_creation(cl_program p, struct link *l, int32_t status, struct blob *facts) {
	if (status != 0) {
		p->o.links &= ~l->bit;
		free(facts->data);
		return status;
	}
	if (!facts->size) {
		free(facts->data);
		return 0;
	}
	struct build_text *text = build_text_new(NULL);
	struct outcome *o = text ? outcome_new(l, facts, text) : NULL;
	build_text_drop(text);
	if (!o)
		return CL_OUT_OF_HOST_MEMORY;
	program_set_outcome(p, l->index, o);
	return 0;
}

struct binaries {
	cl_uint count;
	const cl_device_id *devices;
	const size_t *lengths;
	const unsigned char **data;
	cl_int *status;
};

static int32_t binaries_check(cl_context context, const struct binaries *b) {
	if (!b->devices || b->count == 0)
		return CL_INVALID_VALUE;
	int32_t status = devices_check(context, b->count, b->devices);
	if (status == 0 && (!b->lengths || !b->data))
		status = CL_INVALID_VALUE;
	for (cl_uint i = 0; status == 0 && i < b->count; i++)
		if (b->lengths[i] == 0 || !b->data[i])
			status = CL_INVALID_VALUE;
	return status;
}

/* Returns the binaries of one link's devices, one after the other. */
static struct blob join_binaries(const struct binaries *b, const struct link *l, uint64_t *lengths) {
	struct blob all = {0};
	uint64_t n = 0;
	for (cl_uint i = 0; i < b->count; i++)
		if (b->devices[i]->link == l)
			all.size += lengths[n++] = b->lengths[i];
	unsigned char *end = all.data = all.size <= LARGEST ? malloc(all.size + 1) : NULL;
	for (cl_uint i = 0; end && i < b->count; i++)
		if (b->devices[i]->link == l)
			end = mempcpy(end, b->data[i], b->lengths[i]);
	return all;
}

static void scatter_status(const struct binaries *b, const struct link *l, const struct blob *status) {
	size_t n = 0;
	for (cl_uint i = 0; b->status && i < b->count; i++)
		if (b->devices[i]->link == l && (n + 1) * sizeof(cl_int) <= status->size)
			memcpy(&b->status[i], status->data + sizeof(cl_int) * n++, sizeof(cl_int));
}

static int32_t send_binaries(cl_program p, const struct binaries *b, struct link *l) {
	uint64_t *ids = malloc(2 * b->count * sizeof *ids), *lengths = ids + b->count;
	struct blob all = ids ? join_binaries(b, l, lengths) : (struct blob){0}, status = {0}, facts = {0};
	int32_t result = CL_OUT_OF_HOST_MEMORY;
	if (all.data) {
		uint64_t n = devices_on(l, b->count, b->devices, ids);
		result = call_clCreateProgramWithBinary(l->session, p->context->o.id, ids, n, lengths, n, all.data, all.size, p->o.id, &status, &facts);
		scatter_status(b, l, &status);
	}
	free(status.data);
	free(all.data);
	free(ids);
	return store_creation(p, l, result, &facts);
}

cl_program ob_clCreateProgramWithBinary(cl_context context, cl_uint num_devices, const cl_device_id *device_list, const size_t *lengths,
					const unsigned char **binaries, cl_int *binary_status, cl_int *errcode_ret) {
	struct binaries b = {num_devices, device_list, lengths, binaries, binary_status};
	int32_t status = binaries_check(context, &b);
	if (status != 0)
		return program_fail(status, errcode_ret);
	cl_program p = program_new(context, FROM_BINARY, num_devices, device_list);
	if (!p)
		return program_fail(CL_OUT_OF_HOST_MEMORY, errcode_ret);
	struct link *l;
	FOR_LINKS(l, p->o.links) {
		int32_t s = send_binaries(p, &b, l);
		status = status ? status : s;
	}
	return status ? discard(p, status, errcode_ret) : succeed(p, errcode_ret);
}

static int32_t send_builtin(cl_program p, const char *names, struct link *l) {
	uint64_t *ids = malloc(p->device_count * sizeof *ids);
	struct blob facts = {0};
	int32_t status = CL_OUT_OF_HOST_MEMORY;
	if (ids) {
		uint64_t n = devices_on(l, p->device_count, p->devices, ids);
		status = call_clCreateProgramWithBuiltInKernels(l->session, p->context->o.id, ids, n, names, p->o.id, &facts);
	}
	free(ids);
	return store_creation(p, l, status, &facts);
}

cl_program ob_clCreateProgramWithBuiltInKernels(cl_context context, cl_uint num_devices, const cl_device_id *device_list, const char *kernel_names, cl_int *errcode_ret) {
	int32_t status = kernel_names ? devices_check(context, num_devices, device_list) : CL_INVALID_VALUE;
	if (status != 0)
		return program_fail(status, errcode_ret);
	cl_program p = program_new(context, FROM_BUILTIN, num_devices, device_list);
	if (!p)
		return program_fail(CL_OUT_OF_HOST_MEMORY, errcode_ret);
	struct link *l;
	FOR_LINKS(l, p->o.links) {
		int32_t s = send_builtin(p, kernel_names, l);
		status = status ? status : s;
	}
	return status ? discard(p, status, errcode_ret) : succeed(p, errcode_ret);
}

/* Keeps the devices of links that accepted the program. */
static void keep_devices_on(cl_program p, uint64_t links) {
	cl_uint n = 0;
	for (cl_uint i = 0; i < p->device_count; i++)
		if (p->devices[i]->link->bit & links)
			p->devices[n++] = p->devices[i];
	p->device_count = n;
}

/* False when the device's driver reports that it accepts no intermediate language. */
static int accepts_il(cl_device_id device) {
	int32_t status = 0;
	size_t size = 0;
	const char *versions = facts_find(device->facts, OP_clGetDeviceInfo, device->o.id, 0, 0, CL_DEVICE_IL_VERSION, &status, &size);
	return !versions || status != 0 || (size > 0 && *versions);
}

static int any_accepts_il(cl_uint count, const cl_device_id *devices) {
	for (cl_uint i = 0; i < count; i++)
		if (accepts_il(devices[i]))
			return 1;
	return 0;
}

cl_program ob_clCreateProgramWithIL(cl_context context, const void *il, size_t length, cl_int *errcode_ret) {
	if (!any_accepts_il(context->device_count, context->devices))
		return program_fail(CL_INVALID_OPERATION, errcode_ret);
	if (!il || length == 0)
		return program_fail(CL_INVALID_VALUE, errcode_ret);
	cl_program p = length <= LARGEST ? program_new(context, FROM_IL, 0, NULL) : NULL;
	if (!p)
		return program_fail(CL_OUT_OF_HOST_MEMORY, errcode_ret);
	p->il = (struct blob){malloc(length), length};
	int32_t status = p->il.data ? 0 : CL_OUT_OF_HOST_MEMORY;
	if (p->il.data)
		memcpy(p->il.data, il, length);
	struct link *l;
	uint64_t accepted = 0;
	FOR_LINKS(l, p->il.data ? p->o.links : 0) {
		int32_t s = call_clCreateProgramWithIL(l->session, context->o.id, il, length, p->o.id);
		accepted |= s == 0 ? l->bit : 0;
		status = status ? status : s;
	}
	p->o.links = accepted;
	if (!accepted)
		return discard(p, status, errcode_ret);
	keep_devices_on(p, accepted);
	return succeed(p, errcode_ret);
}

cl_int ob_clSetProgramSpecializationConstant(cl_program p, cl_uint spec_id, size_t spec_size, const void *spec_value) {
	if (!any_accepts_il(p->device_count, p->devices))
		return CL_INVALID_OPERATION;
	if (p->origin != FROM_IL)
		return CL_INVALID_PROGRAM;
	if (!spec_value || spec_size == 0)
		return CL_INVALID_VALUE;
	struct link *l;
	int32_t status = 0;
	FOR_LINKS(l, p->o.links) {
		int32_t s = call_clSetProgramSpecializationConstant(l->session, p->o.id, spec_id, spec_value, spec_size);
		status = status ? status : s;
	}
	return status;
}

/* This callback reports the end of program-scope destructors, which exist in none of the reported
 * versions. */
cl_int ob_clSetProgramReleaseCallback(cl_program p, PFN_clSetProgramReleaseCallback notify, void *user_data) {
	(void)p;
	(void)notify;
	(void)user_data;
	return CL_INVALID_OPERATION;
}

cl_int ob_clUnloadPlatformCompiler(cl_platform_id platform) {
	(void)platform;
	return CL_SUCCESS;
}

cl_int ob_clUnloadCompiler(void) { return CL_SUCCESS; }
