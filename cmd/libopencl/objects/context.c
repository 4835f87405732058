/* context.c: a context's destruction, and its error callback. Layer: objects. */
#include "library.h"
#include "memory.h"

/* Destructor callbacks run before anything is freed, the last set first. */
void context_destroy(void *object) {
	cl_context c = object;
	for (struct destructor *d = c->destructors, *next; d; d = next) {
		next = d->next;
		d->call(c, d->user_data);
		free(d);
	}
	for (cl_uint i = 0; i < c->device_count; i++)
		object_drop(c->devices[i]);
	free(c->devices);
	free(c->properties.data);
	free(c->formats.data);
	coherence_forget(c);
	pthread_mutex_destroy(&c->lock);
}

struct error_report {
	cl_context context;
	size_t size;
	char *text;
	unsigned char private_info[];
};

static void report_error(void *arg) {
	struct error_report *c = arg;
	c->context->notify(c->text, c->size ? c->private_info : NULL, c->size, c->context->notify_data);
	object_drop(c->context);
	free(c->text);
	free(c);
}

void context_notify(cl_context context, const char *text, const void *private_info, size_t size) {
	if (!context->notify)
		return;
	struct error_report *c = malloc(sizeof *c + size);
	char *copy = strdup(text);
	if (c && copy) {
		*c = (struct error_report){context, size, copy};
		if (size)
			memcpy(c->private_info, private_info, size);
		object_hold(context);
		if (callback_post(link_at((uint32_t)__builtin_ctzll(context->o.links)), report_error, c) == 0)
			return;
		object_drop(context);
	}
	free(copy);
	free(c);
}
