/* svm.c: shared virtual memory, coarse-grained. Layer: calls.
 *
 * The worker's driver chooses an allocation's address, and this process reserves the same one. When
 * it is in use here, or not aligned, the worker is asked for another one while the refused ones are
 * kept, with so much padding that the driver does not allocate it from its heap. A context over
 * several links has no SVM: drivers can't be given an address. */
#include "svm.h"

#include "calls.h"

#include <string.h>

/* PADDING_FIRST keeps two allocations from sharing a page; PADDING_NEXT is more than malloc
 * allocates from its heap. */
enum { ATTEMPTS = 8, PADDING_FIRST = 4096, PADDING_NEXT = 33 << 20, LARGEST_PATTERN = 128 };

static int device_has_svm(cl_device_id d) { return (device_number(d, CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) != 0; }

int context_has_svm(cl_context context) {
	for (cl_uint i = 0; i < context->device_count; i++)
		if (device_has_svm(context->devices[i]))
			return 1;
	return 0;
}

/* ---- allocation */

static int can_allocate(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
	if (!context_has_svm(context) || (flags & ~(cl_svm_mem_flags)MEM_ACCESS) || (flags & (flags - 1)) || (alignment & (alignment - 1)) || size == 0)
		return 0;
	for (cl_uint i = 0; i < context->device_count; i++)
		if (size > device_number(context->devices[i], CL_DEVICE_MAX_MEM_ALLOC_SIZE))
			return 0;
	if (context->o.links & (context->o.links - 1)) {
		context_notify(context, "clSVMAlloc: the context's devices belong to several leases; make a context of one of them", NULL, 0);
		return 0;
	}
	return 1;
}

/* Programs use addresses as aligned ones, with instructions that fault on others. 0 is the alignment
 * of the largest type, long16 (OpenCL 2.0, section 5.6.1). */
static int is_aligned(uint64_t address, cl_uint alignment) { return address % (alignment ? alignment : sizeof(cl_long16)) == 0; }

/* Returns an allocation that has its address here, or one without host_ptr when that is in use or
 * not aligned; NULL when there is no memory. */
static cl_mem attempt(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment, uint64_t padding) {
	struct link *link = context->devices[0]->link;
	int32_t status;
	uint64_t address = 0;
	cl_mem m = mem_new_root(context, CL_MEM_OBJECT_BUFFER, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size, size, link->bit, &status);
	if (!m)
		return NULL;
	m->svm = 1;
	status = call_svm_alloc(link->session, api_id(context), mem_wire_flags(flags), size, alignment, padding, m->o.id, &address);
	if (status != 0) {
		object_drop(m);
		return NULL;
	}
	if (!is_aligned(address, alignment) || !svm_place(m, address))
		m->host_ptr = NULL;
	return m;
}

void *ob_clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
	cl_mem refused[ATTEMPTS], m = NULL;
	int count = 0;
	if (!can_allocate(context, flags, size, alignment))
		return NULL;
	do {
		m = attempt(context, flags, size, alignment, count ? PADDING_NEXT : PADDING_FIRST);
		if (!m || m->host_ptr)
			break;
		refused[count++] = m;
		m = NULL;
	} while (count < ATTEMPTS);
	for (int i = 0; i < count; i++)
		object_drop(refused[i]);
	return m ? m->host_ptr : NULL;
}

static void svm_free(cl_context context, void *p) {
	cl_mem m = svm_remove(context, p);
	if (!m)
		return;
	maps_drop(m);
	object_drop(m);
}

void ob_clSVMFree(cl_context context, void *p) { svm_free(context, p); }

/* ---- commands */

/* The first checks of all commands: the device, then the wait list. */
static int32_t check_queue(cl_command_queue queue, cl_uint count, const cl_event *list) {
	return device_has_svm(queue->device) ? command_check_waits(queue->context, count, list) : CL_INVALID_OPERATION;
}

struct free_call {
	cl_command_queue queue; /* held */
	PFN_clEnqueueSVMFree notify;
	void *user_data;
	cl_uint count;
	void *pointers[];
};

static void free_due(void *arg, int32_t status) {
	struct free_call *f = arg;
	if (status >= 0 && f->notify)
		f->notify(f->queue, f->count, f->pointers, f->user_data);
	for (cl_uint i = 0; status >= 0 && !f->notify && i < f->count; i++)
		svm_free(f->queue->context, f->pointers[i]);
	object_drop(f->queue);
	free(f);
}

cl_int ob_clEnqueueSVMFree(cl_command_queue queue, cl_uint num, void **pointers, PFN_clEnqueueSVMFree notify, void *user_data, cl_uint count, const cl_event *list, cl_event *event) {
	if (!device_has_svm(queue->device))
		return CL_INVALID_OPERATION;
	if ((num == 0) != (pointers == NULL))
		return CL_INVALID_VALUE;
	struct free_call *f = malloc(sizeof *f + num * sizeof *pointers);
	if (!f)
		return CL_OUT_OF_HOST_MEMORY;
	*f = (struct free_call){queue, notify, user_data, num};
	if (num)
		memcpy(f->pointers, pointers, num * sizeof *pointers);
	object_hold(queue);
	int32_t status = hostwork_enqueue(queue, CL_COMMAND_SVM_FREE, free_due, f, count, list, event);
	if (status != 0) {
		object_drop(queue);
		free(f);
	}
	return status;
}

/* A copy; a source or destination without an allocation is the program's own memory. */
struct copy {
	void *to;
	const void *from;
	size_t size, to_offset, from_offset;
	cl_mem to_mem, from_mem;
};

static void copy_due(void *arg, int32_t status) {
	struct copy *n = arg;
	if (status >= 0)
		memmove(n->to, n->from, n->size);
	free(n);
}

/* Copies between two places in the program's own memory. */
static int32_t copy_host(cl_command_queue queue, const struct copy *n, cl_uint count, const cl_event *list, cl_event *event) {
	struct copy *kept = malloc(sizeof *kept);
	if (!kept)
		return CL_OUT_OF_HOST_MEMORY;
	*kept = *n;
	int32_t status = hostwork_enqueue(queue, CL_COMMAND_SVM_MEMCPY, copy_due, kept, count, list, event);
	if (status != 0)
		free(kept);
	return status;
}

static int32_t copy_device(cl_command_queue queue, const struct copy *n, cl_uint count, const cl_event *list, cl_event *event) {
	struct command c;
	int32_t status = command_begin(&c, queue, CL_COMMAND_SVM_MEMCPY, count, list, event);
	if (status != 0)
		return status;
	status = command_reads(&c, n->from_mem);
	if (status == 0)
		status = command_writes(&c, n->to_mem);
	if (status == 0)
		status = send_clEnqueueCopyBuffer(c.session, NULL, api_id(queue), api_id(n->from_mem), api_id(n->to_mem), n->from_offset, n->to_offset,
			n->size, c.waits, c.wait_count, c.event);
	return command_end(&c, status);
}

/* Copies that do not access the program's memory, or only that: a blocking call waits for the
 * command's event. */
static int32_t copy_apart(cl_command_queue queue, const struct copy *n, cl_bool blocking, cl_uint count, const cl_event *list, cl_event *event) {
	cl_event own = NULL, *out = event ? event : blocking ? &own : NULL;
	int32_t status;
	if (n->size == 0)
		status = enqueue_mark(queue, CL_COMMAND_SVM_MEMCPY, count, list, out);
	else if (n->to_mem)
		status = copy_device(queue, n, count, list, out);
	else
		status = copy_host(queue, n, count, list, out);
	if (status == 0 && blocking)
		status = event_wait(*out);
	if (own)
		object_release(own);
	return status == 0 && blocking ? queue_take_sticky(queue) : status;
}

static int32_t copy(cl_command_queue queue, const struct copy *n, cl_bool blocking, cl_uint count, const cl_event *list, cl_event *event) {
	if (n->size == 0 || !n->to_mem == !n->from_mem)
		return copy_apart(queue, n, blocking, count, list, event);
	if (n->to_mem) {
		struct region g = {.mem = n->to_mem, .offset = n->to_offset, .size = n->size, .host = layout_flat(n->from, n->size)};
		return write_region(queue, CL_COMMAND_SVM_MEMCPY, &g, blocking, count, list, event);
	}
	struct region g = {.mem = n->from_mem, .offset = n->from_offset, .size = n->size, .host = layout_flat(n->to, n->size)};
	return read_region(queue, CL_COMMAND_SVM_MEMCPY, &g, blocking, count, list, event);
}

static int overlap(const void *a, const void *b, size_t size) {
	uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
	return (x < y ? y - x : x - y) < size;
}

/* Returns CL_INVALID_VALUE for bytes that begin in an allocation and end outside. */
static int32_t find_ends(cl_context context, struct copy *n) {
	size_t offset;
	n->to_mem = svm_find(context, n->to, n->size, &n->to_offset);
	n->from_mem = svm_find(context, n->from, n->size, &n->from_offset);
	cl_mem to = n->to_mem ? NULL : svm_find(context, n->to, 1, &offset), from = n->from_mem ? NULL : svm_find(context, n->from, 1, &offset);
	int32_t status = to || from ? CL_INVALID_VALUE : 0;
	if (to)
		object_drop(to);
	if (from)
		object_drop(from);
	return status;
}

cl_int ob_clEnqueueSVMMemcpy(cl_command_queue queue, cl_bool blocking, void *to, const void *from, size_t size, cl_uint count, const cl_event *list, cl_event *event) {
	struct copy n = {.to = to, .from = from, .size = size};
	int32_t status = check_queue(queue, count, list);
	if (status == 0 && (!to || !from))
		status = CL_INVALID_VALUE;
	if (status == 0 && overlap(to, from, size))
		status = CL_MEM_COPY_OVERLAP;
	if (status == 0)
		status = find_ends(queue->context, &n);
	if (status == 0)
		status = copy(queue, &n, blocking, count, list, event);
	if (n.to_mem)
		object_drop(n.to_mem);
	if (n.from_mem)
		object_drop(n.from_mem);
	return status;
}

static int32_t check_fill(const void *p, const void *pattern, size_t pattern_size, size_t size) {
	if (!p || !pattern || pattern_size == 0 || pattern_size > LARGEST_PATTERN || (pattern_size & (pattern_size - 1)))
		return CL_INVALID_VALUE;
	return (uintptr_t)p % pattern_size || size % pattern_size ? CL_INVALID_VALUE : 0;
}

static int32_t fill(cl_command_queue queue, cl_mem m, size_t offset, const void *pattern, size_t pattern_size, size_t size, cl_uint count, const cl_event *list, cl_event *event) {
	struct command c;
	int32_t status = command_begin(&c, queue, CL_COMMAND_SVM_MEMFILL, count, list, event);
	if (status != 0)
		return status;
	status = command_writes(&c, m);
	if (status == 0)
		status = send_clEnqueueFillBuffer(c.session, NULL, api_id(queue), api_id(m), pattern, pattern_size, offset, size, c.waits, c.wait_count, c.event);
	return command_end(&c, status);
}

cl_int ob_clEnqueueSVMMemFill(cl_command_queue queue, void *p, const void *pattern, size_t pattern_size, size_t size, cl_uint count, const cl_event *list, cl_event *event) {
	size_t offset;
	int32_t status = check_queue(queue, count, list);
	if (status == 0)
		status = check_fill(p, pattern, pattern_size, size);
	if (status != 0)
		return status;
	if (size == 0)
		return enqueue_mark(queue, CL_COMMAND_SVM_MEMFILL, count, list, event);
	cl_mem m = svm_find(queue->context, p, size, &offset);
	if (!m)
		return CL_INVALID_VALUE;
	status = fill(queue, m, offset, pattern, pattern_size, size, count, list, event);
	object_drop(m);
	return status;
}

cl_int ob_clEnqueueSVMMap(cl_command_queue queue, cl_bool blocking, cl_map_flags flags, void *p, size_t size, cl_uint count, const cl_event *list, cl_event *event) {
	struct map_call call = {queue, CL_COMMAND_SVM_MAP, blocking, flags, count, list, event};
	size_t offset;
	int32_t status = check_queue(queue, count, list);
	if (status == 0 && (!p || size == 0 || (flags & ~(cl_map_flags)(CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION))))
		status = CL_INVALID_VALUE;
	if (status != 0)
		return status;
	cl_mem m = svm_find(queue->context, p, size, &offset);
	if (!m)
		return CL_INVALID_VALUE;
	(void)map_bytes(&call, m, offset, size, &status);
	object_drop(m);
	return status;
}

cl_int ob_clEnqueueSVMUnmap(cl_command_queue queue, void *p, cl_uint count, const cl_event *list, cl_event *event) {
	size_t offset;
	int32_t status = check_queue(queue, count, list);
	cl_mem m = status == 0 && p ? svm_find(queue->context, p, 1, &offset) : NULL;
	if (status == 0 && !m)
		status = CL_INVALID_VALUE;
	if (status != 0)
		return status;
	status = map_end(queue, CL_COMMAND_SVM_UNMAP, m, p, count, list, event);
	object_drop(m);
	return status;
}

/* A hint: with one link there is no place to migrate to. A size of 0 means the whole allocation. */
cl_int ob_clEnqueueSVMMigrateMem(cl_command_queue queue, cl_uint num, const void **pointers, const size_t *sizes, cl_mem_migration_flags flags, cl_uint count, const cl_event *list, cl_event *event) {
	static const cl_mem_migration_flags known = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
	int32_t status = device_has_svm(queue->device) ? 0 : CL_INVALID_OPERATION;
	if (status == 0 && (num == 0 || !pointers || (flags & ~known)))
		status = CL_INVALID_VALUE;
	for (cl_uint i = 0; status == 0 && i < num; i++) {
		size_t offset;
		cl_mem m = svm_find(queue->context, pointers[i], sizes && sizes[i] ? sizes[i] : 1, &offset);
		status = m ? 0 : CL_INVALID_VALUE;
		if (m)
			object_drop(m);
	}
	return status ? status : enqueue_mark(queue, CL_COMMAND_SVM_MIGRATE_MEM, count, list, event);
}

/* ---- kernels */

/* Sends the allocations that the kernel reaches through pointers that are not arguments; a count of
 * 0 is an empty list. */
static int32_t send_pointers(cl_kernel k, void *const *pointers, size_t count) {
	cl_context context = k->program->context;
	uint64_t *ids = malloc((count + 1) * sizeof *ids);
	int32_t status = ids ? 0 : CL_OUT_OF_HOST_MEMORY;
	for (size_t i = 0, offset; status == 0 && i < count; i++) {
		cl_mem m = svm_find(context, pointers[i], 1, &offset);
		status = m ? 0 : CL_INVALID_VALUE;
		ids[i] = api_id(m);
		if (m)
			object_drop(m);
	}
	for (uint32_t i = 0; status == 0 && i < k->on_count; i++)
		if (device_has_svm(k->on[i].link->device))
			status = send_clSetKernelExecInfo(k->on[i].link->session, NULL, k->o.id, CL_KERNEL_EXEC_INFO_SVM_PTRS, ids, count);
	free(ids);
	return status;
}

cl_int ob_clSetKernelExecInfo(cl_kernel k, cl_kernel_exec_info name, size_t size, const void *value) {
	if (!context_has_svm(k->program->context))
		return CL_INVALID_OPERATION;
	if (!value && (name != CL_KERNEL_EXEC_INFO_SVM_PTRS || size != 0))
		return CL_INVALID_VALUE;
	switch (name) {
	case CL_KERNEL_EXEC_INFO_SVM_PTRS:
		if ((size == 0 && value) || size % sizeof(void *) != 0)
			return CL_INVALID_VALUE;
		return send_pointers(k, value, size / sizeof(void *));
	case CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM: /* no device has that */
		if (size != sizeof(cl_bool))
			return CL_INVALID_VALUE;
		return *(const cl_bool *)value ? CL_INVALID_OPERATION : CL_SUCCESS;
	}
	return CL_INVALID_VALUE;
}
