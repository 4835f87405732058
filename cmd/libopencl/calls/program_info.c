/* program_info.c: queries of programs and builds, answered from the facts of the build where
 * possible. Layer: calls. */
#include "calls.h"

enum { MAX_BINARY = 64 << 20 }; /* no larger binary fits into a reply */

/* The arguments of a query. */
struct query {
	cl_uint name;
	size_t size;
	void *value;
	size_t *size_ret;
};

static int32_t answer(const struct query *q, const void *value, size_t size) { return info_answer(value, size, q->size, q->value, q->size_ret); }

static int32_t answer_blob(const struct query *q, int32_t status, struct blob *value) {
	if (status == 0)
		status = answer(q, value->data, value->size);
	free(value->data);
	return status;
}

static int is_good(const struct outcome *o, cl_program p, cl_uint name) {
	int32_t status = -1;
	size_t size;
	return o && o->facts && facts_find(o->facts, OP_clGetProgramInfo, p->o.id, 0, 0, name, &status, &size) && status == 0;
}

/* Returns the first link that has an answer, else the first link. */
static struct link *best_link(cl_program p, cl_uint name) {
	struct link *l, *first = NULL;
	FOR_LINKS(l, p->o.links) {
		struct outcome *o = program_outcome(p, l->index);
		int good = is_good(o, p, name);
		outcome_drop(o);
		if (good)
			return l;
		first = first ? first : l;
	}
	return first;
}

/* Copies the answer, since a rebuild may free the facts. */
static int32_t query(cl_program p, struct link *l, cl_uint name, struct blob *value) {
	struct outcome *o = program_outcome(p, l->index);
	int32_t status = 0;
	size_t size = 0;
	const void *fact = o && o->facts ? facts_find(o->facts, OP_clGetProgramInfo, p->o.id, 0, 0, name, &status, &size) : NULL;
	*value = (struct blob){0};
	if (!fact) {
		status = call_clGetProgramInfo(l->session, p->o.id, name, value);
		if (status == 0 && !fact_complete(OP_clGetProgramInfo, name, value))
			status = CL_OUT_OF_HOST_MEMORY;
	} else if (status == 0) {
		*value = (struct blob){malloc(size + 1), size};
		if (value->data)
			memcpy(value->data, fact, size);
		else
			status = CL_OUT_OF_HOST_MEMORY;
	}
	outcome_drop(o);
	return status;
}

static int32_t answer_first(cl_program p, const struct query *q) {
	struct link *l = best_link(p, q->name);
	if (!l)
		return CL_INVALID_PROGRAM_EXECUTABLE;
	struct blob value;
	return answer_blob(q, query(p, l, q->name, &value), &value);
}

/* Collects the sizes of all devices from the links, in the program's order. A link without an
 * answer counts 0. */
static int32_t binary_sizes(cl_program p, size_t *sizes) {
	struct link *l;
	int answered = 0;
	int32_t status = CL_INVALID_PROGRAM;
	memset(sizes, 0, p->device_count * sizeof *sizes);
	FOR_LINKS(l, p->o.links) {
		struct blob value;
		int32_t s = query(p, l, CL_PROGRAM_BINARY_SIZES, &value);
		size_t n = 0;
		for (cl_uint i = 0; s == 0 && i < p->device_count; i++)
			if (p->devices[i]->link == l && (n + 1) * sizeof *sizes <= value.size)
				memcpy(&sizes[i], value.data + sizeof *sizes * n++, sizeof *sizes);
		free(value.data);
		answered += s == 0;
		status = s ? s : status;
	}
	return answered ? 0 : status;
}

/* query_sizes queries the sizes and records them as returned to the program. */
static int32_t query_sizes(cl_program p, size_t *sizes) {
	size_t bytes = p->device_count * sizeof *sizes, *copy = malloc(bytes + 1);
	int32_t status = copy ? binary_sizes(p, sizes) : CL_OUT_OF_HOST_MEMORY;
	for (cl_uint i = 0; status == 0 && i < p->device_count; i++)
		if (sizes[i] > MAX_BINARY)
			status = CL_OUT_OF_RESOURCES;
	if (status != 0) {
		free(copy);
		return status;
	}
	memcpy(copy, sizes, bytes);
	pthread_mutex_lock(&p->lock);
	free(p->binary_sizes);
	p->binary_sizes = copy;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/* answered_sizes returns the sizes that were last returned to the program, from which it has
 * allocated its memory. If none were returned, they are queried and recorded as returned. They are
 * never taken from a later answer of the worker. */
static int32_t answered_sizes(cl_program p, size_t *sizes) {
	size_t bytes = p->device_count * sizeof *sizes;
	pthread_mutex_lock(&p->lock);
	int known = p->binary_sizes != NULL;
	if (known)
		memcpy(sizes, p->binary_sizes, bytes);
	pthread_mutex_unlock(&p->lock);
	return known ? 0 : query_sizes(p, sizes);
}

static int32_t answer_binary_sizes(cl_program p, const struct query *q) {
	size_t *sizes = calloc(p->device_count, sizeof *sizes);
	int32_t status = sizes ? query_sizes(p, sizes) : CL_OUT_OF_HOST_MEMORY;
	if (status == 0)
		status = answer(q, sizes, p->device_count * sizeof *sizes);
	free(sizes);
	return status;
}

/* Copies the binaries of a link's devices into the program's memory, which has the given sizes:
 * other sizes are an error. */
static int32_t fetch_binaries(cl_program p, struct link *l, const size_t *sizes, unsigned char **to) {
	struct blob all = {0};
	int32_t status = call_clGetProgramInfo(l->session, p->o.id, CL_PROGRAM_BINARIES, &all);
	size_t at = 0;
	for (cl_uint i = 0; status == 0 && i < p->device_count; i++) {
		if (p->devices[i]->link != l)
			continue;
		if (sizes[i] > all.size - at)
			status = CL_OUT_OF_RESOURCES;
		else if (to[i] && sizes[i])
			memcpy(to[i], all.data + at, sizes[i]);
		at += status == 0 ? sizes[i] : 0;
	}
	free(all.data);
	return status;
}

static uint64_t links_with_binaries(cl_program p, const size_t *sizes) {
	uint64_t links = 0;
	for (cl_uint i = 0; i < p->device_count; i++)
		links |= sizes[i] ? p->devices[i]->link->bit : 0;
	return links;
}

static int32_t answer_binaries(cl_program p, const struct query *q) {
	size_t need = p->device_count * sizeof(unsigned char *), *sizes = calloc(p->device_count, sizeof *sizes);
	int32_t status = sizes ? answered_sizes(p, sizes) : CL_OUT_OF_HOST_MEMORY;
	if (status == 0 && q->value && q->size < need)
		status = CL_INVALID_VALUE;
	struct link *l;
	FOR_LINKS(l, status == 0 && q->value ? links_with_binaries(p, sizes) : 0)
		status = status ? status : fetch_binaries(p, l, sizes, q->value);
	if (status == 0 && q->size_ret)
		*q->size_ret = need;
	free(sizes);
	return status;
}

static int32_t answer_source(cl_program p, const struct query *q) {
	return p->source.data ? answer(q, p->source.data, p->source.size) : answer(q, "", 1);
}

cl_int ob_clGetProgramInfo(cl_program p, cl_program_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	const struct query q = {param_name, param_value_size, param_value, param_value_size_ret};
	switch (param_name) {
	case CL_PROGRAM_REFERENCE_COUNT:
		INFO(cl_uint, atomic_load(&p->o.refs));
	case CL_PROGRAM_CONTEXT:
		INFO(cl_context, p->context);
	case CL_PROGRAM_NUM_DEVICES:
		INFO(cl_uint, p->device_count);
	case CL_PROGRAM_DEVICES:
		return answer(&q, p->devices, p->device_count * sizeof *p->devices);
	case CL_PROGRAM_SOURCE:
		return answer_source(p, &q);
	case CL_PROGRAM_IL:
		return answer(&q, p->il.data, p->il.size);
	case CL_PROGRAM_BINARY_SIZES:
		return answer_binary_sizes(p, &q);
	case CL_PROGRAM_BINARIES:
		return answer_binaries(p, &q);
	}
	return answer_first(p, &q);
}

static int32_t answer_log(const struct outcome *o, const struct query *q, const void *log, size_t size) {
	if (!o || o->text->headers.name_count == 0)
		return answer(q, log, size);
	char *text = includes_restore(&o->text->headers, log, strnlen(log, size));
	int32_t status = text ? answer(q, text, strlen(text) + 1) : CL_OUT_OF_HOST_MEMORY;
	free(text);
	return status;
}

/* Answers for a build whose headers could not be sent, so that no worker knows of it. */
static int32_t answer_refused(const struct outcome *o, const struct query *q) {
	const char *log = o->text->headers.refusal;
	cl_build_status status = CL_BUILD_ERROR;
	cl_program_binary_type type = CL_PROGRAM_BINARY_TYPE_NONE;
	size_t variables = 0;
	switch (q->name) {
	case CL_PROGRAM_BUILD_STATUS:
		return answer(q, &status, sizeof status);
	case CL_PROGRAM_BUILD_LOG:
		return answer(q, log, strlen(log) + 1);
	case CL_PROGRAM_BINARY_TYPE:
		return answer(q, &type, sizeof type);
	case CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE:
		return answer(q, &variables, sizeof variables);
	}
	return CL_INVALID_VALUE;
}

static int32_t query_worker(cl_program p, const struct outcome *o, cl_device_id device, const struct query *q) {
	struct blob value = {0};
	int32_t status = call_clGetProgramBuildInfo(device->link->session, p->o.id, device->o.id, q->name, &value);
	if (status == 0 && !fact_complete(OP_clGetProgramBuildInfo, q->name, &value))
		status = CL_OUT_OF_HOST_MEMORY;
	if (q->name != CL_PROGRAM_BUILD_LOG || status != 0)
		return answer_blob(q, status, &value);
	status = answer_log(o, q, value.data ? (const void *)value.data : "", value.data ? value.size : 1);
	free(value.data);
	return status;
}

static int32_t answer_build(cl_program p, const struct outcome *o, cl_device_id device, const struct query *q) {
	if (q->name == CL_PROGRAM_BUILD_OPTIONS && (!o || o->text->headers.name_count || o->text->headers.refusal || o->text->arg_info_added))
		return o ? answer(q, o->text->options, strlen(o->text->options) + 1) : answer(q, "", 1);
	if (o && o->text->headers.refusal)
		return answer_refused(o, q);
	if (!o && q->name == CL_PROGRAM_BUILD_STATUS && p->origin != FROM_BINARY) {
		cl_build_status none = CL_BUILD_NONE;
		return answer(q, &none, sizeof none);
	}
	int32_t status;
	size_t size;
	const void *fact = o && o->facts ? facts_find(o->facts, OP_clGetProgramBuildInfo, p->o.id, device->o.id, 0, q->name, &status, &size) : NULL;
	if (!fact)
		return query_worker(p, o, device, q);
	if (status != 0)
		return status;
	return q->name == CL_PROGRAM_BUILD_LOG ? answer_log(o, q, fact, size) : answer(q, fact, size);
}

cl_int ob_clGetProgramBuildInfo(cl_program p, cl_device_id device, cl_program_build_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	const struct query q = {param_name, param_value_size, param_value, param_value_size_ret};
	if (!program_has_device(p, device))
		return CL_INVALID_DEVICE;
	if (atomic_load(&p->building) && param_name == CL_PROGRAM_BUILD_STATUS) /* the worker is busy building */
		INFO(cl_build_status, CL_BUILD_IN_PROGRESS);
	struct outcome *o = program_outcome(p, device->link->index);
	int32_t status = answer_build(p, o, device, &q);
	outcome_drop(o);
	return status;
}
