/* kernel.c: kernel objects. Layer: objects. */
#include "kernel.h"

const struct kernel_on *kernel_on_link(cl_kernel k, const struct link *link) {
	for (uint32_t i = 0; i < k->on_count; i++)
		if (k->on[i].link == link)
			return &k->on[i];
	return NULL;
}

static void kernel_destroy(void *object) {
	cl_kernel k = object;
	for (cl_uint i = 0; k->args && i < k->shape->arg_count; i++)
		if (k->args[i].value != k->args[i].small)
			free(k->args[i].value);
	free(k->args);
	for (uint32_t i = 0; i < k->on_count; i++)
		outcome_drop(k->on[i].outcome);
	free(k->on);
	pthread_mutex_destroy(&k->lock);
	atomic_fetch_sub(&k->program->kernels, 1);
	object_drop(k->program);
}

cl_kernel kernel_new(cl_program p, const struct kernel_on *on, uint32_t count, struct shape *shape) {
	uint64_t links = 0;
	for (uint32_t i = 0; i < count; i++)
		links |= on[i].link->bit;
	struct kernel_on *own = malloc(count * sizeof *own);
	struct arg *args = calloc((size_t)shape->arg_count + 1, sizeof *args);
	cl_kernel k = own && args ? object_new(sizeof *k, KIND_KERNEL, links, kernel_destroy) : NULL;
	if (!k) {
		free(own);
		free(args);
		return NULL;
	}
	memcpy(own, on, count * sizeof *own);
	k->on = own;
	k->on_count = count;
	k->shape = shape;
	k->args = args;
	k->unset = shape->arg_count;
	k->program = p;
	object_hold(p);
	atomic_fetch_add(&p->kernels, 1);
	pthread_mutex_init(&k->lock, NULL);
	return k;
}
