/* kernel.c: creates and clones kernels, without waiting for a worker. Layer: calls. */
#include "calls.h"

cl_int ob_clRetainKernel(cl_kernel k) { return object_retain(k); }

cl_int ob_clReleaseKernel(cl_kernel k) { return object_release(k); }

/* Finds the links where the program has a kernel of that name. Returns their number; 0 with the
 * reason in *status. */
static uint32_t find_on(cl_program p, const char *name, struct kernel_on *on, int32_t *status) {
	uint32_t count = 0;
	struct link *l;
	*status = CL_INVALID_PROGRAM_EXECUTABLE;
	FOR_LINKS(l, p->o.links) {
		struct outcome *o = program_outcome(p, l->index);
		int32_t why = CL_INVALID_PROGRAM_EXECUTABLE;
		struct shape *s = o ? outcome_shape(o, p, name, &why) : NULL;
		if (s) {
			on[count++] = (struct kernel_on){l, o, s};
			continue;
		}
		outcome_drop(o);
		if (why != CL_INVALID_PROGRAM_EXECUTABLE) /* the most specific reason */
			*status = why;
	}
	return count;
}

static void drop_on(struct kernel_on *on, uint32_t count) {
	for (uint32_t i = 0; i < count; i++)
		outcome_drop(on[i].outcome);
}

/* The links must report the same arguments. */
static int32_t choose_shape(const struct kernel_on *on, uint32_t count, struct shape **chosen) {
	*chosen = on[0].shape;
	for (uint32_t i = 1; i < count; i++) {
		if (on[i].shape->arg_count != on[0].shape->arg_count)
			return CL_INVALID_KERNEL_DEFINITION;
		if (!shape_knows(*chosen))
			*chosen = on[i].shape;
	}
	return 0;
}

static cl_kernel finish_creation(cl_kernel k, int sent, int32_t status, cl_int *errcode_ret) {
	if (!sent)
		object_release(k);
	if (errcode_ret)
		*errcode_ret = sent ? CL_SUCCESS : status;
	return sent ? k : NULL;
}

static cl_kernel create(cl_program p, const char *name, cl_int *errcode_ret) {
	struct kernel_on on[LINKS];
	int32_t status;
	struct shape *shape = NULL;
	uint32_t count = find_on(p, name, on, &status);
	if (count)
		status = choose_shape(on, count, &shape);
	cl_kernel k = count && status == 0 ? kernel_new(p, on, count, shape) : NULL;
	if (!k) {
		drop_on(on, count);
		return program_fail(status ? status : CL_OUT_OF_HOST_MEMORY, errcode_ret);
	}
	int sent = 0;
	for (uint32_t i = 0; i < count; i++) {
		int32_t s = send_clCreateKernel(on[i].link->session, NULL, p->o.id, name, k->o.id);
		sent += s == 0;
		status = s ? s : status;
	}
	return finish_creation(k, sent, status, errcode_ret);
}

static cl_uint count_names(const char *names) {
	cl_uint n = *names != 0;
	for (; *names; names++)
		n += *names == ';';
	return n;
}

static int32_t create_all(cl_program p, const char *names, cl_kernel *kernels) {
	char *copy = strdup(names), *rest = copy, *name;
	int32_t status = copy ? 0 : CL_OUT_OF_HOST_MEMORY;
	cl_uint n = 0;
	while (status == 0 && (name = strsep(&rest, ";"))) {
		cl_kernel k = create(p, name, &status);
		if (k)
			kernels[n++] = k;
	}
	while (status != 0 && n > 0)
		object_release(kernels[--n]);
	free(copy);
	return status;
}

/* Returns the names of the first link that has any; the caller drops *held. */
static const char *program_names(cl_program p, struct outcome **held) {
	struct link *l;
	*held = NULL;
	FOR_LINKS(l, atomic_load(&p->building) ? 0 : p->o.links) {
		struct outcome *o = program_outcome(p, l->index);
		const char *names = o ? outcome_kernels(o, p) : NULL;
		if (names) {
			*held = o;
			return names;
		}
		outcome_drop(o);
	}
	return NULL;
}

/* Without a name, the error depends on whether the program has any kernels. */
static int32_t check_unnamed(cl_program p) {
	struct outcome *held;
	int32_t status = program_names(p, &held) ? CL_INVALID_VALUE : CL_INVALID_PROGRAM_EXECUTABLE;
	outcome_drop(held);
	return status;
}

cl_kernel ob_clCreateKernel(cl_program p, const char *name, cl_int *errcode_ret) {
	if (!name)
		return program_fail(check_unnamed(p), errcode_ret);
	if (atomic_load(&p->building))
		return program_fail(CL_INVALID_PROGRAM_EXECUTABLE, errcode_ret);
	return create(p, name, errcode_ret);
}

cl_int ob_clCreateKernelsInProgram(cl_program p, cl_uint num_kernels, cl_kernel *kernels, cl_uint *num_kernels_ret) {
	struct outcome *held;
	const char *names = program_names(p, &held);
	if (!names)
		return CL_INVALID_PROGRAM_EXECUTABLE;
	cl_uint count = count_names(names);
	int32_t status = 0;
	if ((kernels && num_kernels == 0) || (!kernels && num_kernels != 0) || (kernels && num_kernels < count))
		status = CL_INVALID_VALUE;
	else if (kernels && count)
		status = create_all(p, names, kernels);
	outcome_drop(held);
	if (status == 0 && num_kernels_ret)
		*num_kernels_ret = count;
	return status;
}

static int copy_value(struct arg *to, const struct arg *from) {
	if (!from->value || from->value == from->small) {
		to->value = from->value ? to->small : NULL;
		return 0;
	}
	to->value = malloc(from->size);
	if (to->value)
		memcpy(to->value, from->value, from->size);
	return to->value ? 0 : -1;
}

static int copy_args(cl_kernel to, cl_kernel from) {
	int status = 0;
	pthread_mutex_lock(&from->lock);
	for (cl_uint i = 0; status == 0 && i < from->shape->arg_count; i++) {
		const struct arg *a = &from->args[i];
		struct arg *b = &to->args[i];
		b->set = a->set, b->form = a->form, b->size = a->size;
		memcpy(b->small, a->small, sizeof b->small);
		b->object = a->object;
		b->mem = a->mem;
		status = copy_value(b, a);
	}
	to->unset = from->unset;
	to->locals = from->locals;
	pthread_mutex_unlock(&from->lock);
	return status;
}

cl_kernel ob_clCloneKernel(cl_kernel source, cl_int *errcode_ret) {
	for (uint32_t i = 0; i < source->on_count; i++)
		atomic_fetch_add(&source->on[i].outcome->refs, 1);
	cl_kernel k = kernel_new(source->program, source->on, source->on_count, source->shape);
	if (!k)
		drop_on(source->on, source->on_count);
	if (!k || copy_args(k, source) != 0) {
		if (k)
			object_release(k);
		return program_fail(CL_OUT_OF_HOST_MEMORY, errcode_ret);
	}
	int sent = 0;
	int32_t status = 0;
	for (uint32_t i = 0; i < k->on_count; i++) {
		int32_t s = send_clCloneKernel(k->on[i].link->session, NULL, source->o.id, k->o.id);
		sent += s == 0;
		status = s ? s : status;
	}
	return finish_creation(k, sent, status, errcode_ret);
}
