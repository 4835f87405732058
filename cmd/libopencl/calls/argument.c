/* argument.c: clSetKernelArg. Arguments that the driver would reject are rejected here; an
 * unchanged argument is not sent again. Layer: calls. */
#include "calls.h"
#include "svm.h"

/* An argument to be set. */
struct setting {
	enum arg_form form;
	size_t size;
	const void *value; /* of FORM_BYTES and FORM_SVM */
	uint64_t object;
};

static const void *handle_in(const void *value) {
	const void *handle = NULL;
	if (value)
		memcpy(&handle, value, sizeof handle);
	return handle;
}

static int32_t set_handle(struct setting *s, const void *value, enum arg_form form, uint32_t kind, int32_t invalid) {
	if (s->size != sizeof(void *))
		return CL_INVALID_ARG_SIZE;
	const void *handle = handle_in(value);
	if (handle ? !api_valid(handle, kind) : form != FORM_MEM)
		return invalid;
	s->form = form;
	s->object = api_id(handle);
	return 0;
}

static int32_t set_mem(struct setting *s, const struct arg_shape *a, const void *value) {
	if (!value && a->kind != ARG_POINTER)
		return CL_INVALID_ARG_VALUE;
	int32_t status = set_handle(s, value, FORM_MEM, KIND_MEM, CL_INVALID_MEM_OBJECT);
	cl_mem m = status == 0 ? (cl_mem)(uintptr_t)handle_in(value) : NULL;
	if (status == 0 && a->kind != ARG_POINTER && (!m || (a->kind == ARG_IMAGE ? !mem_is_image(m) : !mem_is_pipe(m))))
		status = CL_INVALID_MEM_OBJECT;
	return status;
}

static int32_t set_local(struct setting *s, const void *value) {
	if (value)
		return CL_INVALID_ARG_VALUE;
	if (s->size == 0)
		return CL_INVALID_ARG_SIZE;
	s->form = FORM_LOCAL;
	return 0;
}

static int32_t set_value(struct setting *s, const struct arg_shape *a, const void *value) {
	if (!value)
		return CL_INVALID_ARG_VALUE;
	if (s->size == 0 || (a->size && s->size != a->size && s->size != a->tight))
		return CL_INVALID_ARG_SIZE;
	s->value = value;
	return 0;
}

/* The argument's type is unknown: a value that is a live handle is sent as a handle, any other
 * value unchanged, and the driver decides. */
static int32_t set_unknown(struct setting *s, const void *value) {
	static const enum arg_form forms[KINDS] = {[KIND_MEM] = FORM_MEM, [KIND_SAMPLER] = FORM_SAMPLER, [KIND_QUEUE] = FORM_QUEUE};
	s->form = value ? FORM_BYTES : FORM_LOCAL;
	s->value = value;
	struct object *o = value && s->size == sizeof o ? handle_find(handle_in(value)) : NULL;
	if (!o)
		return value && s->size == 0 ? CL_INVALID_ARG_SIZE : 0;
	s->form = forms[o->kind];
	s->value = NULL;
	s->object = o->id;
	object_drop(o);
	return 0;
}

static int32_t interpret(struct setting *s, const struct arg_shape *a, const void *value) {
	switch (a->kind) {
	case ARG_LOCAL:
		return set_local(s, value);
	case ARG_POINTER:
	case ARG_IMAGE:
	case ARG_PIPE:
		return set_mem(s, a, value);
	case ARG_SAMPLER:
		return value ? set_handle(s, value, FORM_SAMPLER, KIND_SAMPLER, CL_INVALID_SAMPLER) : CL_INVALID_ARG_VALUE;
	case ARG_QUEUE:
		return value ? set_handle(s, value, FORM_QUEUE, KIND_QUEUE, CL_INVALID_DEVICE_QUEUE) : CL_INVALID_ARG_VALUE;
	case ARG_VALUE:
		return set_value(s, a, value);
	default:
		return set_unknown(s, value);
	}
}

static int is_same(const struct arg *a, const struct setting *s) {
	return a->set && a->form == s->form && a->size == s->size && a->object == s->object && (!s->value || memcmp(a->value, s->value, s->size) == 0);
}

/* Allocates memory for the bytes, before any message is sent. */
static int reserve_value(struct arg *a, const struct setting *s) {
	int fits = a->value && a->value != a->small && a->form == FORM_BYTES && a->size >= s->size;
	if (!s->value || fits)
		return 0;
	unsigned char *room = s->size <= sizeof a->small ? a->small : malloc(s->size);
	if (!room)
		return -1;
	if (a->value != a->small)
		free(a->value);
	a->value = room;
	return 0;
}

static void store(cl_kernel k, struct arg *a, const struct setting *s) {
	int was_local = a->set && a->form == FORM_LOCAL;
	if (s->value)
		memcpy(a->value, s->value, s->size);
	a->form = s->form;
	a->size = s->size;
	a->object = s->object;
	a->mem = s->form == FORM_MEM ? s->object : 0;
	atomic_fetch_add(&k->locals, (uint32_t)((s->form == FORM_LOCAL) - was_local));
	if (!a->set)
		atomic_fetch_sub(&k->unset, 1);
	a->set = 1;
}

static int32_t send(cl_kernel k, cl_uint index, const struct setting *s) {
	int sent = 0;
	int32_t status = 0;
	for (uint32_t i = 0; i < k->on_count; i++) {
		int32_t r = send_clSetKernelArg(k->on[i].link->session, NULL, k->o.id, index, s->size, s->form, s->object, s->value, s->value ? s->size : 0);
		sent += r == 0;
		status = r ? r : status;
	}
	return sent ? 0 : status; /* a dead link does not fail the others */
}

/* Called under the kernel's lock, so that the last value stored is the last one sent. */
static int32_t set(cl_kernel k, cl_uint index, const struct setting *s) {
	struct arg *a = &k->args[index];
	if (is_same(a, s) && !library.resend_unchanged_args)
		return 0;
	if (reserve_value(a, s) != 0)
		return CL_OUT_OF_HOST_MEMORY;
	int32_t status = send(k, index, s);
	if (status == 0)
		store(k, a, s);
	return status;
}

static int32_t set_locked(cl_kernel k, cl_uint index, const struct setting *s) {
	pthread_mutex_lock(&k->lock);
	int32_t status = set(k, index, s);
	pthread_mutex_unlock(&k->lock);
	return status;
}

cl_int ob_clSetKernelArg(cl_kernel k, cl_uint arg_index, size_t arg_size, const void *arg_value) {
	if (arg_index >= k->shape->arg_count)
		return CL_INVALID_ARG_INDEX;
	struct setting s = {.form = FORM_BYTES, .size = arg_size};
	int32_t status = interpret(&s, &k->shape->args[arg_index], arg_value);
	return status ? status : set_locked(k, arg_index, &s);
}

cl_int ob_clSetKernelArgSVMPointer(cl_kernel k, cl_uint arg_index, const void *arg_value) {
	cl_context context = k->program->context;
	if (!context_has_svm(context))
		return CL_INVALID_OPERATION;
	if (arg_index >= k->shape->arg_count)
		return CL_INVALID_ARG_INDEX;
	enum arg_kind kind = k->shape->args[arg_index].kind;
	size_t offset = 0;
	if (kind != ARG_POINTER && kind != ARG_UNKNOWN)
		return CL_INVALID_ARG_VALUE;
	cl_mem m = arg_value ? svm_find(context, arg_value, 0, &offset) : NULL;
	if (arg_value && !m)
		return CL_INVALID_ARG_VALUE;
	struct setting s = {.form = FORM_SVM, .size = sizeof offset, .value = &offset, .object = api_id(m)};
	if (!m) /* a worker without SVM on another link of the context knows no pointers */
		s = (struct setting){.form = FORM_MEM, .size = sizeof m};
	int32_t status = set_locked(k, arg_index, &s);
	if (m)
		object_drop(m);
	return status;
}
