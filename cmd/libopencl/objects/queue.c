/* queue.c: a queue's completed commands and its deferred failures. Layer: objects. */
#include "library.h"

void queue_destroy(void *object) {
	cl_command_queue q = object;
	free(q->property_list.data);
	object_drop(q->device);
	object_drop(q->context);
}

int32_t queue_take_sticky(cl_command_queue q) {
	return atomic_load(&q->sticky) == 0 ? 0 : atomic_exchange(&q->sticky, 0);
}

void queue_finished(cl_command_queue q, uint64_t serial) {
	uint64_t old = atomic_load(&q->finished);
	while (old < serial && !atomic_compare_exchange_weak(&q->finished, &old, serial))
		;
}

int queue_in_order(cl_command_queue q) { return !(q->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE); }

void queue_reached(cl_command_queue q, uint64_t serial) {
	if (queue_in_order(q))
		queue_finished(q, serial);
}
