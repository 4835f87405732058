/* launch.c: enqueues kernels. Layer: calls.
 *
 * Launches that the driver would reject are rejected here, so that the call returns the error.
 * Unless an event is requested, no lock is acquired and no memory allocated. */
#include "calls.h"

struct launch {
	cl_kernel kernel;
	cl_uint dimensions;
	const size_t *offset, *global, *local;
	int empty; /* no work-items */
};

static int32_t check_global(struct launch *n, const struct limits *l) {
	for (cl_uint i = 0; !n->global || i < n->dimensions; i++) {
		if (!n->global || n->global[i] == 0) {
			n->empty = 1;
			return l->empty ? 0 : CL_INVALID_GLOBAL_WORK_SIZE;
		}
		if (n->global[i] > l->most)
			return CL_INVALID_GLOBAL_WORK_SIZE;
		if (n->offset && n->global[i] - 1 > l->most - n->offset[i])
			return CL_INVALID_GLOBAL_OFFSET;
	}
	return 0;
}

/* The specification does not define a local size of 0 and drivers differ, so the driver decides. */
static int32_t check_local(const struct launch *n, const struct limits *l) {
	size_t items = 1;
	for (cl_uint i = 0; i < n->dimensions; i++) {
		if (n->local[i] == 0)
			return 0;
		if (n->local[i] > l->group / items)
			return CL_INVALID_WORK_GROUP_SIZE;
		items *= n->local[i];
	}
	for (cl_uint i = 0; i < n->dimensions; i++)
		if (n->local[i] > l->items[i])
			return CL_INVALID_WORK_ITEM_SIZE;
	for (cl_uint i = 0; i < n->dimensions; i++)
		if (!l->uneven && n->global[i] % n->local[i] != 0)
			return CL_INVALID_WORK_GROUP_SIZE;
	return 0;
}

/* __attribute__((reqd_work_group_size)) */
static int32_t check_fixed(const struct launch *n, const struct limits *l) {
	if (l->fixed[0] == 0)
		return 0;
	for (cl_uint i = 0; i < 3; i++)
		if (!n->local || l->fixed[i] != (i < n->dimensions ? n->local[i] : 1))
			return CL_INVALID_WORK_GROUP_SIZE;
	return 0;
}

static int32_t check_sizes(struct launch *n, const struct limits *l) {
	if (n->dimensions < 1 || n->dimensions > l->dimensions)
		return CL_INVALID_WORK_DIMENSION;
	int32_t status = check_global(n, l);
	if (status == 0 && !n->empty && n->local)
		status = check_local(n, l);
	return status == 0 && !n->empty ? check_fixed(n, l) : status;
}

static int32_t check(struct launch *n, cl_command_queue queue) {
	cl_kernel k = n->kernel;
	if (queue->context != k->program->context)
		return CL_INVALID_CONTEXT;
	const struct kernel_on *on = kernel_on_link(k, queue->link);
	if (!on)
		return CL_INVALID_PROGRAM_EXECUTABLE;
	const struct limits *l = shape_limits(on->shape, k->program, queue->device);
	if (!l)
		return CL_OUT_OF_HOST_MEMORY;
	if (!l->built)
		return CL_INVALID_PROGRAM_EXECUTABLE;
	if (atomic_load_explicit(&k->unset, memory_order_relaxed))
		return CL_INVALID_KERNEL_ARGS;
	int32_t status = check_sizes(n, l);
	return status ? status : atomic_load_explicit(&k->o.failed, memory_order_relaxed);
}

static int32_t use(struct command *c, const struct arg_shape *a, uint64_t id) {
	cl_mem m = object_find(id, KIND_MEM);
	if (!m) /* released since it was set: the driver's object would be freed as well */
		return CL_INVALID_KERNEL_ARGS;
	int32_t status = a->reads || (m->flags & CL_MEM_READ_ONLY) ? command_reads(c, m) : command_writes(c, m);
	object_drop(m);
	return status;
}

static int32_t use_args(struct command *c, cl_kernel k) {
	int32_t status = 0;
	for (cl_uint i = 0; status == 0 && i < k->shape->arg_count; i++) {
		uint64_t id = atomic_load_explicit(&k->args[i].mem, memory_order_relaxed);
		if (id)
			status = use(c, &k->shape->args[i], id);
	}
	return status;
}

/* A launch without work-items is sent as a marker: some drivers crash on it. */
static int32_t send_empty(struct command *c) {
	return send_clEnqueueMarkerWithWaitList(c->session, NULL, c->queue->o.id, c->waits, c->wait_count, c->event);
}

static int32_t send(struct command *c, const struct launch *n) {
	uint64_t d = n->dimensions;
	return send_clEnqueueNDRangeKernel(c->session, NULL, c->queue->o.id, n->kernel->o.id, n->dimensions, (const uint64_t *)n->offset, d,
					   (const uint64_t *)n->global, d, (const uint64_t *)n->local, d, c->waits, c->wait_count, c->event);
}
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "sizes travel as they are");

static cl_int enqueue(cl_command_queue queue, struct launch *n, cl_command_type type, cl_uint count, const cl_event *list, cl_event *event) {
	int32_t status = check(n, queue);
	struct command c;
	if (status == 0)
		status = command_begin(&c, queue, type, count, list, event);
	if (status != 0)
		return status;
	status = use_args(&c, n->kernel);
	if (status == 0)
		status = n->empty ? send_empty(&c) : send(&c, n);
	return command_end(&c, status);
}

cl_int ob_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint work_dim, const size_t *global_work_offset, const size_t *global_work_size,
				 const size_t *local_work_size, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
	struct launch n = {kernel, work_dim, global_work_offset, global_work_size, local_work_size, 0};
	return enqueue(queue, &n, CL_COMMAND_NDRANGE_KERNEL, num_events_in_wait_list, event_wait_list, event);
}

cl_int ob_clEnqueueTask(cl_command_queue queue, cl_kernel kernel, cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
	static const size_t one = 1;
	struct launch n = {kernel, 1, NULL, &one, &one, 0};
	/* Drivers report the command type of a launch for a task. */
	return enqueue(queue, &n, CL_COMMAND_NDRANGE_KERNEL, num_events_in_wait_list, event_wait_list, event);
}
