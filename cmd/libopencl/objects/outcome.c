/* outcome.c: the result of the last build of a program on one link. Layer: objects. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "program.h"
#include "kernel.h"

#include <string.h>

struct build_text *build_text_new(const char *options) {
	struct build_text *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->refs = 1;
	t->options = strdup(options ? options : "");
	if (!t->options) {
		free(t);
		return NULL;
	}
	return t;
}

struct build_text *build_text_hold(struct build_text *t) {
	atomic_fetch_add(&t->refs, 1);
	return t;
}

void build_text_drop(struct build_text *t) {
	if (!t || atomic_fetch_sub(&t->refs, 1) != 1)
		return;
	includes_free(&t->headers);
	free(t->options);
	free(t);
}

struct outcome *outcome_new(struct link *link, struct blob *facts, struct build_text *text) {
	struct outcome *o = calloc(1, sizeof *o);
	struct facts *f = facts->size ? facts_new(facts->data, facts->size) : NULL;
	int bad = !o || (facts->size && !f);
	free(facts->data);
	*facts = (struct blob){0};
	if (bad) {
		if (f)
			facts_drop(f);
		free(o);
		return NULL;
	}
	o->refs = 1;
	o->link = link;
	o->facts = f;
	o->text = build_text_hold(text);
	pthread_mutex_init(&o->lock, NULL);
	return o;
}

void outcome_drop(struct outcome *o) {
	if (!o || atomic_fetch_sub(&o->refs, 1) != 1)
		return;
	if (o->shapes)
		o->free_shapes(o->shapes);
	if (o->facts)
		facts_drop(o->facts);
	build_text_drop(o->text);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

struct outcome *program_outcome(cl_program p, uint32_t link) {
	pthread_mutex_lock(&p->lock);
	struct outcome *o = p->outcomes[link];
	if (o)
		atomic_fetch_add(&o->refs, 1);
	pthread_mutex_unlock(&p->lock);
	return o;
}

void program_set_outcome(cl_program p, uint32_t link, struct outcome *o) {
	pthread_mutex_lock(&p->lock);
	struct outcome *old = p->outcomes[link];
	p->outcomes[link] = o;
	pthread_mutex_unlock(&p->lock);
	outcome_drop(old);
}

cl_build_status outcome_status(const struct outcome *o, cl_program p, cl_device_id device) {
	if (o->text->headers.refusal)
		return CL_BUILD_ERROR;
	int32_t status;
	size_t size;
	const void *value = facts_find(o->facts, OP_clGetProgramBuildInfo, p->o.id, device->o.id, 0, CL_PROGRAM_BUILD_STATUS, &status, &size);
	cl_build_status built = CL_BUILD_NONE;
	if (value && status == 0 && size == sizeof built)
		memcpy(&built, value, sizeof built);
	return built;
}

/* A compiled and unlinked program has no kernels, though some drivers list them. Drivers before 1.2
 * report no binary type. */
static int has_kernels(const struct outcome *o, cl_program p, cl_device_id device) {
	int32_t status;
	size_t size;
	const void *value = facts_find(o->facts, OP_clGetProgramBuildInfo, p->o.id, device->o.id, 0, CL_PROGRAM_BINARY_TYPE, &status, &size);
	cl_program_binary_type type = CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
	if (value && status == 0 && size == sizeof type)
		memcpy(&type, value, sizeof type);
	return type != CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT && type != CL_PROGRAM_BINARY_TYPE_LIBRARY;
}

const char *outcome_kernels(const struct outcome *o, cl_program p) {
	if (!o->facts)
		return NULL;
	int built = 0;
	for (cl_uint i = 0; i < p->device_count && !built; i++) {
		cl_device_id device = p->devices[i];
		built = device->link == o->link && outcome_status(o, p, device) == CL_BUILD_SUCCESS && has_kernels(o, p, device);
	}
	int32_t status = 0;
	size_t size = 0;
	const char *names = built ? facts_find(o->facts, OP_clGetProgramInfo, p->o.id, 0, 0, CL_PROGRAM_KERNEL_NAMES, &status, &size) : NULL;
	return names && status == 0 && size && names[size - 1] == 0 ? names : NULL;
}
