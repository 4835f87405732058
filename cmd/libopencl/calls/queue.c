/* queue.c: creates, queries, flushes and finishes command queues. Layer: calls. */
#include "calls.h"

static const cl_command_queue_properties host_bits = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;

/* ---- properties. Plain properties are checked here, and the queue is created without waiting. For
 * all others (queues on the device, their sizes, hints, properties that only this driver knows) the
 * driver's result is awaited. */

struct queue_args {
	cl_command_queue_properties bits;
	cl_uint size;
	int sized, unchecked;
};

static void read_properties(const cl_queue_properties *p, struct queue_args *w) {
	for (size_t i = 0; p && p[i] != 0; i += 2) {
		if (p[i] == CL_QUEUE_PROPERTIES) {
			w->bits = p[i + 1];
			continue;
		}
		w->unchecked = 1;
		if (p[i] == CL_QUEUE_SIZE) {
			w->size = (cl_uint)p[i + 1];
			w->sized = 1;
		}
	}
}

static cl_int check_device(cl_context context, cl_device_id device, struct queue_args *w) {
	if (!device_in_context(context, device))
		return CL_INVALID_DEVICE;
	if (w->bits & ~(host_bits & device_number(device, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES)))
		w->unchecked = 1;
	return CL_SUCCESS;
}

/* creation_result waits for the driver's result: the notice of a failure precedes the reply to any
 * later call. */
static cl_int creation_result(cl_command_queue q) {
	uint64_t clock;
	cl_int status = call_clock(q->link->session, &clock);
	return status ? status : atomic_load(&q->o.failed);
}

static cl_command_queue queue_new(cl_context context, cl_device_id device, const struct queue_args *w) {
	cl_command_queue q = object_new(sizeof *q, KIND_QUEUE, device->link->bit, queue_destroy);
	if (!q)
		return NULL;
	q->context = context;
	q->device = device;
	object_hold(context);
	object_hold(device);
	q->link = device->link;
	q->properties = w->bits;
	q->size = w->size;
	if (w->bits & CL_QUEUE_PROFILING_ENABLE)
		(void)link_learn_clock(q->link); /* a dead link fails elsewhere */
	if ((w->bits & CL_QUEUE_ON_DEVICE) && !w->sized)
		q->size = (cl_uint)device_number(device, CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE);
	return q;
}

/* finish_creation returns the queue, or on a failure drops it. */
static cl_command_queue finish_creation(cl_command_queue q, cl_int status, cl_int *errcode_ret) {
	if (!q)
		status = CL_OUT_OF_HOST_MEMORY;
	if (set_errcode(errcode_ret, status) == CL_SUCCESS)
		return q;
	if (q)
		object_drop(q);
	return NULL;
}

cl_command_queue ob_clCreateCommandQueueWithProperties(cl_context context, cl_device_id device, const cl_queue_properties *properties, cl_int *errcode_ret) {
	struct queue_args w = {0};
	read_properties(properties, &w);
	cl_int status = check_device(context, device, &w);
	if (status != CL_SUCCESS)
		return set_errcode(errcode_ret, status), NULL;
	size_t n = 0;
	while (properties && properties[n] != 0)
		n += 2;
	cl_command_queue q = queue_new(context, device, &w);
	if (q && properties && !blob_copy(&q->property_list, properties, (n + 1) * sizeof *properties))
		return finish_creation(q, CL_OUT_OF_HOST_MEMORY, errcode_ret);
	if (q)
		status = send_clCreateCommandQueueWithProperties(q->link->session, NULL, context->o.id, device->o.id, properties, n + 1, q->o.id);
	if (q && status == CL_SUCCESS && w.unchecked)
		status = creation_result(q);
	return finish_creation(q, status, errcode_ret);
}

cl_command_queue ob_clCreateCommandQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *errcode_ret) {
	struct queue_args w = {.bits = properties};
	cl_int status = check_device(context, device, &w);
	if (status != CL_SUCCESS)
		return set_errcode(errcode_ret, status), NULL;
	cl_command_queue q = queue_new(context, device, &w);
	if (q)
		status = send_clCreateCommandQueue(q->link->session, NULL, context->o.id, device->o.id, properties, q->o.id);
	if (q && status == CL_SUCCESS && w.unchecked)
		status = creation_result(q);
	return finish_creation(q, status, errcode_ret);
}

cl_int ob_clRetainCommandQueue(cl_command_queue q) { return object_retain(q); }

/* Releasing flushes: the worker flushes when its driver's queue is released. */
cl_int ob_clReleaseCommandQueue(cl_command_queue q) { return object_release(q); }

cl_int ob_clGetCommandQueueInfo(cl_command_queue q, cl_command_queue_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	switch (param_name) {
	case CL_QUEUE_CONTEXT:
		INFO(cl_context, q->context);
	case CL_QUEUE_DEVICE:
		INFO(cl_device_id, q->device);
	case CL_QUEUE_REFERENCE_COUNT:
		INFO(cl_uint, atomic_load(&q->o.refs));
	case CL_QUEUE_PROPERTIES:
		INFO(cl_command_queue_properties, q->properties);
	case CL_QUEUE_PROPERTIES_ARRAY:
		return info_answer(q->property_list.data, q->property_list.size, param_value_size, param_value, param_value_size_ret);
	case CL_QUEUE_SIZE:
		if (!(q->properties & CL_QUEUE_ON_DEVICE) || device_number(q->device, CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE) == 0)
			return CL_INVALID_COMMAND_QUEUE;
		INFO(cl_uint, q->size);
	case CL_QUEUE_DEVICE_DEFAULT:
		INFO(cl_command_queue, NULL);
	}
	return CL_INVALID_VALUE;
}

cl_int ob_clSetDefaultDeviceCommandQueue(cl_context context, cl_device_id device, cl_command_queue q) {
	if (!device_in_context(context, device))
		return CL_INVALID_DEVICE;
	if (device_number(device, CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE) == 0 ||
	    (device_version(device) >= 30 && !(device_number(device, CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES) & CL_DEVICE_QUEUE_REPLACEABLE_DEFAULT)))
		return CL_INVALID_OPERATION;
	if (!api_valid(q, KIND_QUEUE) || q->context != context || q->device != device || !(q->properties & CL_QUEUE_ON_DEVICE))
		return CL_INVALID_COMMAND_QUEUE;
	return call_clSetDefaultDeviceCommandQueue(q->link->session, context->o.id, device->o.id, q->o.id);
}

cl_int ob_clFlush(cl_command_queue q) {
	int32_t failed = atomic_load(&q->o.failed);
	return failed ? failed : send_clFlush(q->link->session, NULL, q->o.id);
}

/* Does not wait when all commands are known to be complete. */
cl_int ob_clFinish(cl_command_queue q) {
	struct session *s = q->link->session;
	uint64_t sent = atomic_load(&q->sent);
	int32_t status = atomic_load(&q->o.failed);
	if (status == 0 && session_dead(s))
		status = session_dead_status(s);
	if (status == 0 && (sent == 0 || atomic_load(&q->finished) < sent)) {
		session_expect_data(queue_has_read, q);
		status = call_clFinish(s, q->o.id);
		session_expect_data(NULL, NULL);
	}
	if (status == 0)
		queue_finished(q, sent);
	int32_t sticky = queue_take_sticky(q);
	return status ? status : sticky;
}
