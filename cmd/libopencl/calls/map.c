/* map.c: maps and unmaps of buffers and images. Layer: calls.
 *
 * A map makes a region of an object accessible in the program's memory: its own with
 * CL_MEM_USE_HOST_PTR, otherwise a shadow of the whole storage, reserved without commit, so that
 * only mapped pages use memory and overlapping maps agree. A map reads its region from the device,
 * also for writing, because unmap writes all of it back; CL_MAP_WRITE_INVALIDATE_REGION reads
 * nothing. By the specification the program has finished its accesses when it enqueues the unmap,
 * so the data is sent then. A region whose read has not arrived by then cannot have been written,
 * and is not written back. */
#include "calls.h"

#include <sys/mman.h>

/* Returns the address of the object's first byte in the program's memory; NULL when there is no
 * memory. */
static unsigned char *base_of(cl_mem m) {
	cl_mem root = m->root;
	if (m->host_ptr)
		return m->host_ptr;
	pthread_mutex_lock(&root->lock);
	if (!root->shadow) {
		void *p = mmap(NULL, root->storage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		root->shadow = p == MAP_FAILED ? NULL : p;
	}
	unsigned char *shadow = root->shadow;
	pthread_mutex_unlock(&root->lock);
	return shadow ? shadow + m->offset : NULL;
}

static void mapping_add(struct mapping *p) {
	cl_mem root = p->object->root;
	pthread_mutex_lock(&root->lock);
	struct mapping **at = &root->maps;
	while (*at) /* oldest first: unmap removes the oldest */
		at = &(*at)->next;
	p->next = NULL;
	*at = p;
	atomic_fetch_add(&root->map_count, 1);
	pthread_mutex_unlock(&root->lock);
}

static struct mapping *mapping_remove(cl_mem root, const void *pointer) {
	pthread_mutex_lock(&root->lock);
	struct mapping **at = &root->maps, *p;
	while ((p = *at) && p->pointer != pointer)
		at = &p->next;
	if (p) {
		*at = p->next;
		atomic_fetch_sub(&root->map_count, 1);
	}
	pthread_mutex_unlock(&root->lock);
	return p;
}

static struct mapping *mapping_new(cl_mem m, cl_map_flags flags) {
	struct mapping *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	object_hold(p->object = m);
	p->writes = (flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)) != 0;
	return p;
}

static void mapping_free(struct mapping *p) {
	read_drop(p->fetch);
	object_drop(p->object);
	free(p);
}

static struct region mapping_region(const struct mapping *p) {
	cl_mem m = p->object;
	struct region g = {.mem = m, .offset = p->offset, .size = p->size, .origin = p->origin, .region = p->region};
	if (mem_is_image(m))
		g.host = layout_coalesce(image_layout(m, p->pointer, NULL, p->region, m->image.shadow_row, m->image.shadow_slice));
	else
		g.host = layout_flat(p->pointer, p->size);
	return g;
}

static int32_t check_map_access(const struct map_call *call, cl_mem m) {
	cl_mem_flags refused = 0;
	if (call->flags & CL_MAP_READ)
		refused |= CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS;
	if (call->flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION))
		refused |= CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
	return check_host_access(m, refused, call->count, call->list);
}

/* Drivers accept flags that the specification forbids (both kinds, none, unknown ones); then the
 * contents are read. */
static int fetches(cl_map_flags flags) { return !(flags & CL_MAP_WRITE_INVALIDATE_REGION) || (flags & (CL_MAP_READ | CL_MAP_WRITE)); }

static int32_t map_fetch(const struct map_call *call, struct mapping *p) {
	struct command c;
	struct region g = mapping_region(p);
	int32_t status = command_begin(&c, call->queue, call->type, call->count, call->list, call->event);
	if (status != 0)
		return status;
	status = command_reads(&c, p->object);
	if (status == 0)
		status = region_read(&c, &g, call->blocking, &p->fetch);
	return region_end(&c, status, call->blocking, call->blocking);
}

static int queue_idle(cl_command_queue q) { return atomic_load(&q->sent) <= atomic_load(&q->finished); }

/* A blocking map implies that earlier commands are complete. When the map has no command of its own
 * to wait for, that requires a finish. */
static int32_t await_earlier(const struct map_call *call, cl_event own) {
	if (own)
		return event_wait(own);
	return call->blocking && !queue_idle(call->queue) ? ob_clFinish(call->queue) : 0;
}

/* Maps without reading. A command is sent only for an event or a wait list. */
static int32_t map_nothing(const struct map_call *call, struct mapping *p) {
	struct command c;
	int sends = call->event || call->count;
	cl_event own = NULL, *event = call->event ? call->event : call->blocking && sends ? &own : NULL;
	int32_t status = command_begin(&c, call->queue, call->type, call->count, call->list, event);
	if (status != 0)
		return status;
	status = command_reads(&c, p->object);
	if (status == 0 && session_dead(c.session))
		status = session_dead_status(c.session);
	if (status == 0 && sends)
		status = command_marks(&c);
	status = command_end(&c, status);
	if (status == 0)
		status = await_earlier(call, call->blocking && sends ? *event : NULL);
	if (own)
		object_release(own);
	return status == 0 && call->blocking ? queue_take_sticky(call->queue) : status;
}

static void *map_region(const struct map_call *call, struct mapping *p, cl_int *errcode_ret) {
	cl_mem root = p->object->root;
	int reads = fetches(call->flags) && !mem_shadow_current(root);
	uint64_t version = atomic_load(&root->version);
	struct region g = mapping_region(p);
	int32_t status = reads ? map_fetch(call, p) : map_nothing(call, p);
	if (status == 0 && reads && call->blocking && region_covers(&g))
		atomic_store(&root->shadow_version, version);
	if (status != 0) {
		mapping_free(p);
		return mem_fail(status, errcode_ret);
	}
	void *pointer = p->pointer;
	mapping_add(p);
	if (errcode_ret)
		*errcode_ret = CL_SUCCESS;
	return pointer;
}

void *map_bytes(const struct map_call *call, cl_mem buffer, size_t offset, size_t size, cl_int *errcode_ret) {
	unsigned char *base = base_of(buffer);
	struct mapping *p = base ? mapping_new(buffer, call->flags) : NULL;
	if (!p)
		return mem_fail(base ? CL_OUT_OF_HOST_MEMORY : CL_MAP_FAILURE, errcode_ret);
	p->pointer = base + offset;
	p->offset = offset;
	p->size = size;
	return map_region(call, p, errcode_ret);
}

static int32_t check_map_buffer(const struct map_call *call, cl_mem m, size_t offset, size_t size) {
	int32_t status = check_buffer(call->queue, m);
	if (status == 0 && size == 0)
		status = CL_INVALID_VALUE;
	if (status == 0)
		status = check_range(m, offset, size);
	return status ? status : check_map_access(call, m);
}

void *ob_clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags, size_t offset, size_t size, cl_uint count, const cl_event *list, cl_event *event, cl_int *errcode_ret) {
	struct map_call call = {queue, CL_COMMAND_MAP_BUFFER, blocking, flags, count, list, event};
	int32_t status = check_map_buffer(&call, buffer, offset, size);
	return status ? mem_fail(status, errcode_ret) : map_bytes(&call, buffer, offset, size, errcode_ret);
}

static int32_t check_map_image(const struct map_call *call, cl_mem m, const size_t *origin, const size_t *region, const size_t *row_pitch, const size_t *slice_pitch) {
	int32_t status = check_image(call->queue, m);
	if (status == 0)
		status = image_region(m, origin, region);
	if (status == 0 && (!row_pitch || (image_sliced(m->type) && !slice_pitch)))
		status = CL_INVALID_VALUE;
	return status ? status : check_map_access(call, m);
}

void *ob_clEnqueueMapImage(cl_command_queue queue, cl_mem image, cl_bool blocking, cl_map_flags flags, const size_t *origin, const size_t *region, size_t *row_pitch, size_t *slice_pitch, cl_uint count, const cl_event *list, cl_event *event, cl_int *errcode_ret) {
	struct map_call call = {queue, CL_COMMAND_MAP_IMAGE, blocking, flags, count, list, event};
	int32_t status = check_map_image(&call, image, origin, region, row_pitch, slice_pitch);
	if (status != 0)
		return mem_fail(status, errcode_ret);
	unsigned char *base = base_of(image);
	struct mapping *p = base ? mapping_new(image, flags) : NULL;
	if (!p)
		return mem_fail(base ? CL_OUT_OF_HOST_MEMORY : CL_MAP_FAILURE, errcode_ret);
	memcpy(p->origin, origin, sizeof p->origin);
	memcpy(p->region, region, sizeof p->region);
	p->pointer = image_layout(image, base, origin, region, image->image.shadow_row, image->image.shadow_slice).base;
	void *pointer = map_region(&call, p, errcode_ret);
	if (pointer) {
		*row_pitch = image->image.shadow_row;
		if (slice_pitch)
			*slice_pitch = image_sliced(image->type) ? image->image.shadow_slice : 0;
	}
	return pointer;
}

static int writes_back(const struct mapping *p) { return p->writes && (!p->fetch || atomic_load(&p->fetch->arrived)); }

/* write_back writes the mapped region to the device. If the mapped memory held the whole contents
 * before, it holds them afterwards. */
static int32_t write_back(struct command *c, const struct mapping *p) {
	struct region g = mapping_region(p);
	cl_mem root = p->object->root;
	uint64_t before = atomic_load(&root->version);
	int whole = region_covers(&g) || mem_shadow_current(root);
	int32_t status = command_writes(c, p->object);
	uint64_t after = atomic_load(&root->version);
	if (status == 0)
		status = region_write(c, &g, CL_FALSE);
	if (status == 0 && whole && after == before + 1) /* no other command wrote meanwhile */
		atomic_store(&root->shadow_version, after);
	return status;
}

/* Unmaps. Without data to write back, a command is sent only for an event or a wait list. */
static int32_t unmap(struct command *c, const struct mapping *p) {
	if (writes_back(p))
		return write_back(c, p);
	return c->created || c->wait_count ? command_marks(c) : 0;
}

int32_t map_end(cl_command_queue queue, cl_command_type type, cl_mem m, void *pointer, cl_uint count, const cl_event *list, cl_event *event) {
	struct command c;
	int32_t status = command_begin(&c, queue, type, count, list, event);
	if (status != 0)
		return status;
	struct mapping *p = mapping_remove(m->root, pointer);
	status = command_end(&c, p ? unmap(&c, p) : CL_INVALID_VALUE);
	if (p && status != 0)
		mapping_add(p);
	else if (p)
		mapping_free(p);
	return status;
}

void maps_drop(cl_mem root) {
	struct mapping *p, *next;
	pthread_mutex_lock(&root->lock);
	p = root->maps;
	root->maps = NULL;
	atomic_store(&root->map_count, 0);
	pthread_mutex_unlock(&root->lock);
	for (; p; p = next) {
		next = p->next;
		mapping_free(p);
	}
}

cl_int ob_clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem m, void *pointer, cl_uint count, const cl_event *list, cl_event *event) {
	if (m->context != queue->context)
		return CL_INVALID_CONTEXT;
	return map_end(queue, CL_COMMAND_UNMAP_MEM_OBJECT, m, pointer, count, list, event);
}
