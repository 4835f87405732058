/* transfer.c: reads and writes of buffers, rectangles and images. Layer: calls.
 *
 * A blocking read receives directly into the program's memory. A non-blocking one registers a
 * track, which a reading thread fills before it processes any message that implies the command's
 * end. A write's data is copied when it is sent, so a blocking write returns without waiting for
 * the device. */
#include "calls.h"

#include <stdio.h>

void read_drop(struct read *r) {
	if (!r || atomic_fetch_sub(&r->owners, 1) != 1)
		return;
	object_drop(r->mem);
	if (r->event)
		object_drop(r->event);
	object_drop(r->queue);
	free(r->track.dependents);
	free(r);
}

/* Reports a failed read. The death of a session is reported elsewhere, once. */
static void read_failed(struct read *r, int32_t status) {
	int32_t none = 0;
	char text[96];
	atomic_compare_exchange_strong(&r->queue->sticky, &none, status);
	if (r->event)
		event_fail(r->event, status);
	if (session_dead(r->queue->link->session))
		return;
	snprintf(text, sizeof text, "a read failed: %s (%d)", name_of_status(status), status);
	context_notify(r->queue->context, text, NULL, 0);
}

/* The handler of a read's track. */
static void read_ended(struct track *track, int32_t status) {
	struct read *r = track->user;
	if (status == 0)
		atomic_store(&r->arrived, 1);
	else
		read_failed(r, status);
	read_drop(r);
}

static struct read *read_new(const struct command *c, cl_mem m, const struct layout *into) {
	struct read *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->track = (struct track){.into = *into, .done = read_ended, .user = r, .queue = c->queue, .event = c->created};
	atomic_store(&r->owners, 1);
	object_hold(r->queue = c->queue);
	object_hold(r->mem = m);
	if ((r->event = c->created))
		object_hold(r->event);
	return r;
}

static int32_t send_read(const struct command *c, const struct region *g, struct track *track) {
	if (mem_is_image(g->mem))
		return send_clEnqueueReadImage(c->session, track, api_id(c->queue), api_id(g->mem), CL_FALSE, g->origin, 3, g->region, 3,
			c->waits, c->wait_count, c->event);
	return send_clEnqueueReadBuffer(c->session, track, api_id(c->queue), api_id(g->mem), CL_FALSE, g->offset, g->size,
		c->waits, c->wait_count, c->event);
}

/* The reply to a blocking read implies the end of the reads for which it waited, and of earlier reads
 * of an in-order queue. */
static void expect_earlier_reads(const struct command *c) { session_expect_data(command_implies_read, c); }

static int32_t call_read(const struct command *c, const struct region *g) {
	int32_t status;
	expect_earlier_reads(c);
	if (mem_is_image(g->mem))
		status = call_clEnqueueReadImage(c->session, api_id(c->queue), api_id(g->mem), CL_TRUE, g->origin, 3, g->region, 3,
			c->waits, c->wait_count, c->event, &g->host);
	else
		status = call_clEnqueueReadBuffer(c->session, api_id(c->queue), api_id(g->mem), CL_TRUE, g->offset, g->size,
			c->waits, c->wait_count, c->event, &g->host);
	session_expect_data(NULL, NULL);
	return status;
}

int32_t region_read(struct command *c, const struct region *g, cl_bool blocking, struct read **kept) {
	if (blocking)
		return call_read(c, g);
	struct read *r = read_new(c, g->mem, &g->host);
	if (!r)
		return CL_OUT_OF_HOST_MEMORY;
	if (kept)
		atomic_store(&r->owners, 2);
	int32_t status = send_read(c, g, &r->track);
	if (status != 0 && kept)
		read_drop(r);
	if (status != 0)
		read_drop(r);
	else if (kept)
		*kept = r;
	return status;
}

/* A write of 0 bytes is sent as a marker. */
int32_t region_write(struct command *c, const struct region *g, cl_bool blocking) {
	if (layout_size(&g->host) == 0)
		return command_marks(c);
	if (mem_is_image(g->mem))
		return send_clEnqueueWriteImage(c->session, NULL, api_id(c->queue), api_id(g->mem), blocking, g->origin, 3, g->region, 3,
			c->waits, c->wait_count, c->event, &g->host);
	return send_clEnqueueWriteBuffer(c->session, NULL, api_id(c->queue), api_id(g->mem), blocking, g->offset, g->size,
		c->waits, c->wait_count, c->event, &g->host);
}

int32_t command_marks(struct command *c) {
	return send_clEnqueueMarkerWithWaitList(c->session, NULL, api_id(c->queue), c->waits, c->wait_count, c->event);
}

int32_t region_end(struct command *c, int32_t status, cl_bool blocking, int waited) {
	cl_command_queue queue = c->queue;
	uint64_t serial = session_serial(c->session);
	status = command_end(c, status);
	if (status == 0 && waited)
		queue_reached(queue, serial);
	return status == 0 && blocking ? queue_take_sticky(queue) : status;
}

int region_covers(const struct region *g) {
	if (g->mem != g->mem->root)
		return 0;
	if (!mem_is_image(g->mem))
		return g->size == g->mem->size;
	return memcmp(g->region, g->mem->image.extent, sizeof g->mem->image.extent) == 0;
}

int32_t read_region(cl_command_queue queue, cl_command_type type, const struct region *g, cl_bool blocking, cl_uint count, const cl_event *list, cl_event *event) {
	struct command c;
	int32_t status = command_begin(&c, queue, type, count, list, event);
	if (status != 0)
		return status;
	status = command_reads(&c, g->mem);
	if (status == 0)
		status = region_read(&c, g, blocking, NULL);
	return region_end(&c, status, blocking, blocking);
}

/* Begins a write. A blocking write returns early like any other, but fails when an event of its
 * wait list is known to have failed. */
static int32_t command_begin_write(struct command *c, cl_command_queue queue, cl_command_type type, cl_bool blocking, cl_uint count, const cl_event *list, cl_event *event) {
	int32_t status = command_begin(c, queue, type, count, list, event);
	for (cl_uint i = 0; status == 0 && blocking && i < count; i++)
		if (event_status(list[i]) < 0)
			return command_end(c, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
	return status;
}

int32_t write_region(cl_command_queue queue, cl_command_type type, const struct region *g, cl_bool blocking, cl_uint count, const cl_event *list, cl_event *event) {
	struct command c;
	int32_t status = command_begin_write(&c, queue, type, blocking, count, list, event);
	if (status != 0)
		return status;
	status = region_covers(g) ? command_replaces(&c, g->mem) : command_writes(&c, g->mem);
	if (status == 0)
		status = region_write(&c, g, blocking);
	return region_end(&c, status, blocking, 0);
}

static int32_t check_transfer(cl_command_queue queue, cl_mem m, size_t offset, size_t size, const void *ptr) {
	int32_t status = check_buffer(queue, m);
	if (status == 0)
		status = check_range(m, offset, size);
	return status == 0 && !ptr ? CL_INVALID_VALUE : status;
}

cl_int ob_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size, void *ptr, cl_uint count, const cl_event *list, cl_event *event) {
	int32_t status = check_transfer(queue, buffer, offset, size, ptr);
	if (status == 0)
		status = check_host_access(buffer, CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS, count, list);
	if (status != 0)
		return status;
	struct region g = {.mem = buffer, .offset = offset, .size = size, .host = layout_flat(ptr, size)};
	return read_region(queue, CL_COMMAND_READ_BUFFER, &g, blocking, count, list, event);
}

cl_int ob_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size, const void *ptr, cl_uint count, const cl_event *list, cl_event *event) {
	int32_t status = check_transfer(queue, buffer, offset, size, ptr);
	if (status == 0)
		status = check_host_access(buffer, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, count, list);
	if (status != 0)
		return status;
	struct region g = {.mem = buffer, .offset = offset, .size = size, .host = layout_flat(ptr, size)};
	return write_region(queue, CL_COMMAND_WRITE_BUFFER, &g, blocking, count, list, event);
}

struct box {
	const size_t *origin, *region;
	size_t row_pitch, slice_pitch;
};

/* Checks both rectangles, fills in the pitches, and computes the layout in the program's memory. */
static int32_t check_boxes(cl_command_queue queue, cl_mem m, struct box *device, struct box *host, const void *ptr, struct layout *at) {
	int32_t status = check_buffer(queue, m);
	if (status == 0 && !ptr)
		status = CL_INVALID_VALUE;
	if (status == 0)
		status = check_rectangle(m->size, device->origin, device->region, &device->row_pitch, &device->slice_pitch);
	if (status == 0)
		status = check_rectangle(SIZE_MAX, host->origin, host->region, &host->row_pitch, &host->slice_pitch);
	if (status != 0)
		return status;
	size_t start = host->origin[2] * host->slice_pitch + host->origin[1] * host->row_pitch + host->origin[0];
	*at = layout_coalesce((struct layout){(unsigned char *)ptr + start, host->region[0], host->region[1], host->row_pitch, host->region[2], host->slice_pitch});
	return 0;
}

static int32_t rect_read(struct command *c, cl_mem m, const struct box *b, const struct layout *host, cl_bool blocking) {
	int32_t status;
	if (blocking) {
		expect_earlier_reads(c);
		status = call_clEnqueueReadBufferRect(c->session, api_id(c->queue), api_id(m), CL_TRUE, b->origin, 3, b->region, 3, b->row_pitch,
			b->slice_pitch, c->waits, c->wait_count, c->event, host);
		session_expect_data(NULL, NULL);
		return status;
	}
	struct read *r = read_new(c, m, host);
	if (!r)
		return CL_OUT_OF_HOST_MEMORY;
	status = send_clEnqueueReadBufferRect(c->session, &r->track, api_id(c->queue), api_id(m), CL_FALSE, b->origin, 3, b->region, 3,
		b->row_pitch, b->slice_pitch, c->waits, c->wait_count, c->event);
	if (status != 0)
		read_drop(r);
	return status;
}

cl_int ob_clEnqueueReadBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t *buffer_origin, const size_t *host_origin, const size_t *region, size_t buffer_row_pitch, size_t buffer_slice_pitch, size_t host_row_pitch, size_t host_slice_pitch, void *ptr, cl_uint count, const cl_event *list, cl_event *event) {
	struct box device = {buffer_origin, region, buffer_row_pitch, buffer_slice_pitch}, host = {host_origin, region, host_row_pitch, host_slice_pitch};
	struct layout at;
	struct command c;
	int32_t status = check_boxes(queue, buffer, &device, &host, ptr, &at);
	if (status == 0)
		status = check_host_access(buffer, CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS, count, list);
	if (status == 0)
		status = command_begin(&c, queue, CL_COMMAND_READ_BUFFER_RECT, count, list, event);
	if (status != 0)
		return status;
	status = command_reads(&c, buffer);
	if (status == 0)
		status = rect_read(&c, buffer, &device, &at, blocking);
	return region_end(&c, status, blocking, blocking);
}

cl_int ob_clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t *buffer_origin, const size_t *host_origin, const size_t *region, size_t buffer_row_pitch, size_t buffer_slice_pitch, size_t host_row_pitch, size_t host_slice_pitch, const void *ptr, cl_uint count, const cl_event *list, cl_event *event) {
	struct box device = {buffer_origin, region, buffer_row_pitch, buffer_slice_pitch}, host = {host_origin, region, host_row_pitch, host_slice_pitch};
	struct layout at;
	struct command c;
	int32_t status = check_boxes(queue, buffer, &device, &host, ptr, &at);
	if (status == 0)
		status = check_host_access(buffer, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, count, list);
	if (status == 0)
		status = command_begin_write(&c, queue, CL_COMMAND_WRITE_BUFFER_RECT, blocking, count, list, event);
	if (status != 0)
		return status;
	status = command_writes(&c, buffer);
	if (status == 0)
		status = send_clEnqueueWriteBufferRect(c.session, NULL, api_id(queue), api_id(buffer), blocking, device.origin, 3, region, 3,
			device.row_pitch, device.slice_pitch, c.waits, c.wait_count, c.event, &at);
	return region_end(&c, status, blocking, 0);
}

static int32_t check_image_transfer(cl_command_queue queue, struct region *g, size_t row_pitch, size_t slice_pitch, const void *ptr) {
	cl_mem m = g->mem;
	int32_t status = check_image(queue, m);
	if (status == 0 && !ptr)
		status = CL_INVALID_VALUE;
	if (status == 0)
		status = image_region(m, g->origin, g->region);
	if (status != 0)
		return status;
	size_t row = g->region[0] * m->image.element, rows = m->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 1 : g->region[1];
	if (row_pitch && row_pitch < row)
		return CL_INVALID_VALUE;
	if (!image_sliced(m->type))
		slice_pitch = 0; /* the type has no slices */
	if (slice_pitch && slice_pitch < (row_pitch ? row_pitch : row) * rows)
		return CL_INVALID_VALUE;
	g->host = layout_coalesce(image_layout(m, ptr, NULL, g->region, row_pitch, slice_pitch));
	return 0;
}

cl_int ob_clEnqueueReadImage(cl_command_queue queue, cl_mem image, cl_bool blocking, const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch, void *ptr, cl_uint count, const cl_event *list, cl_event *event) {
	struct region g = {.mem = image, .origin = origin, .region = region};
	int32_t status = check_image_transfer(queue, &g, row_pitch, slice_pitch, ptr);
	if (status == 0)
		status = check_host_access(image, CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS, count, list);
	return status ? status : read_region(queue, CL_COMMAND_READ_IMAGE, &g, blocking, count, list, event);
}

cl_int ob_clEnqueueWriteImage(cl_command_queue queue, cl_mem image, cl_bool blocking, const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch, const void *ptr, cl_uint count, const cl_event *list, cl_event *event) {
	struct region g = {.mem = image, .origin = origin, .region = region};
	int32_t status = check_image_transfer(queue, &g, row_pitch, slice_pitch, ptr);
	if (status == 0)
		status = check_host_access(image, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, count, list);
	return status ? status : write_region(queue, CL_COMMAND_WRITE_IMAGE, &g, blocking, count, list, event);
}
