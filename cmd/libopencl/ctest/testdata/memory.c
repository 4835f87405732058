/* memory.c: tests of memory objects against simulated links. memory CASE runs one case; without an
 * argument it prints the names of the cases. */
#include "device.h"
#include "svm.h"

#include <sys/mman.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s\n%s", __FILE__, __LINE__, #what, device_log); \
			exit(1); \
		} \
	} while (0)
#define IS(call, want) \
	do { \
		int is_ = (call); \
		if (is_ != (want)) { \
			fprintf(stderr, "%s:%d: %s is %d, want %d\n%s", __FILE__, __LINE__, #call, is_, (want), device_log); \
			exit(1); \
		} \
	} while (0)

enum { size = 4096 };
static unsigned char host[size], other[size], want[size];
static cl_context context;
static cl_command_queue queue;
static uint32_t seed = 1;

static uint32_t any(uint32_t below) {
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

static void fill(unsigned char *p, size_t n) {
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)any(256);
}

static cl_mem buffer_of(cl_mem_flags flags, size_t n, void *at) {
	cl_int status = 1;
	cl_mem m = ob_clCreateBuffer(context, flags, n, at, &status);
	IS(status, 0);
	return m;
}

static int no_buffer(cl_mem_flags flags, size_t n, void *at) {
	cl_int status = 1;
	CHECK(!ob_clCreateBuffer(context, flags, n, at, &status));
	CHECK(!ob_clCreateBuffer(context, flags, n, at, NULL));
	return status;
}

static cl_uint maps_of(cl_mem m) {
	cl_uint n = 99;
	IS(ob_clGetMemObjectInfo(m, CL_MEM_MAP_COUNT, sizeof n, &n, NULL), 0);
	return n;
}

static size_t number_of(cl_mem m, cl_mem_info name) {
	size_t n = 0;
	IS(ob_clGetMemObjectInfo(m, name, sizeof n, &n, NULL), 0);
	return n;
}

static void *map(cl_mem m, cl_bool blocking, cl_map_flags flags, size_t at, size_t n, cl_event *event) {
	cl_int status = 1;
	void *p = ob_clEnqueueMapBuffer(queue, m, blocking, flags, at, n, 0, NULL, event, &status);
	IS(status, 0);
	return p;
}

static int unmap(cl_mem m, void *p) { return ob_clEnqueueUnmapMemObject(queue, m, p, 0, NULL, NULL); }

/* ---- cases */

static void layouts(void) {
	static const struct {
		struct layout from, to;
	} table[] = {
		{{NULL, 8, 4, 8, 2, 32}, {NULL, 64, 1, 64, 1, 64}},
		{{NULL, 8, 4, 8, 2, 40}, {NULL, 32, 2, 40, 1, 80}},
		{{NULL, 8, 4, 16, 2, 64}, {NULL, 8, 4, 16, 2, 64}},
		{{NULL, 8, 1, 16, 3, 64}, {NULL, 8, 3, 64, 1, 192}},
		{{NULL, 8, 1, 16, 3, 8}, {NULL, 24, 1, 24, 1, 24}},
		{{NULL, 8, 5, 8, 1, 99}, {NULL, 40, 1, 40, 1, 40}},
		{{NULL, 0, 1, 0, 1, 0}, {NULL, 0, 1, 0, 1, 0}},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct layout got = layout_coalesce(table[i].from);
		CHECK(layout_size(&got) == layout_size(&table[i].from));
		CHECK(memcmp(&got, &table[i].to, sizeof got) == 0);
	}
}

static void refused(void) {
	IS(no_buffer(0, 0, NULL), CL_INVALID_BUFFER_SIZE);
	IS(no_buffer(0, LARGEST + 1, NULL), CL_INVALID_BUFFER_SIZE);
	IS(no_buffer(CL_MEM_READ_WRITE | CL_MEM_READ_ONLY, 8, NULL), CL_INVALID_VALUE);
	IS(no_buffer(CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY, 8, NULL), CL_INVALID_VALUE);
	IS(no_buffer((cl_mem_flags)1 << 40, 8, NULL), CL_INVALID_VALUE);
	IS(no_buffer(CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, 8, host), CL_INVALID_VALUE);
	IS(no_buffer(CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 8, host), CL_INVALID_VALUE);
	IS(no_buffer(CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, 8, NULL), CL_INVALID_VALUE);
	IS(no_buffer(CL_MEM_USE_HOST_PTR, 8, NULL), CL_INVALID_HOST_PTR);
	IS(no_buffer(CL_MEM_ALLOC_HOST_PTR, 8, host), CL_INVALID_HOST_PTR);
	CHECK(device_log[0] == 0);
	cl_mem_properties unknown[] = {77, 1, 0};
	cl_int status;
	CHECK(!ob_clCreateBufferWithProperties(context, unknown, 0, 8, NULL, &status));
	IS(status, CL_INVALID_PROPERTY);
	cl_mem m = buffer_of(CL_MEM_HOST_READ_ONLY, size, NULL), no = buffer_of(CL_MEM_HOST_NO_ACCESS, size, NULL);
	IS(ob_clEnqueueWriteBuffer(queue, m, 1, 0, 8, host, 0, NULL, NULL), CL_INVALID_OPERATION);
	IS(ob_clEnqueueReadBuffer(queue, no, 1, 0, 8, host, 0, NULL, NULL), CL_INVALID_OPERATION);
	IS(ob_clEnqueueReadBuffer(queue, m, 1, 0, 8, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clEnqueueReadBuffer(queue, m, 1, size, 1, host, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clEnqueueReadBuffer(queue, m, 1, SIZE_MAX, 2, host, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clEnqueueReadBuffer(queue, m, 1, 0, 8, host, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
	CHECK(!ob_clEnqueueMapBuffer(queue, m, 1, CL_MAP_WRITE, 0, 8, 0, NULL, NULL, &status));
	IS(status, CL_INVALID_OPERATION);
	CHECK(!ob_clEnqueueMapBuffer(queue, no, 1, CL_MAP_READ, 0, 8, 0, NULL, NULL, &status));
	IS(status, CL_INVALID_OPERATION);
	ob_clReleaseMemObject(m);
	ob_clReleaseMemObject(no);
}

/* Creation waits for no reply, and every byte is counted until the object is destroyed. */
static void counted(void) {
	fill(host, size);
	cl_mem m = buffer_of(CL_MEM_COPY_HOST_PTR | CL_MEM_READ_ONLY | CL_MEM_HOST_NO_ACCESS, size, host);
	CHECK(strcmp(device_log, "0 buffer flags=4 size=4096 bulk=4096\n") == 0);
	CHECK(device_calls == 0 && memcmp(device_bytes(0, m), host, size) == 0);
	CHECK(device_links[0].memory_used == size);
	cl_mem most[4];
	for (int i = 0; i < 3; i++)
		most[i] = buffer_of(0, LARGEST, NULL);
	IS(no_buffer(0, LARGEST, NULL), CL_MEM_OBJECT_ALLOCATION_FAILURE);
	most[3] = buffer_of(0, LARGEST - size, NULL);
	IS(no_buffer(0, 1, NULL), CL_MEM_OBJECT_ALLOCATION_FAILURE);
	for (int i = 0; i < 4; i++)
		ob_clReleaseMemObject(most[i]);
	CHECK(device_links[0].memory_used == size);
	atomic_store(&m->o.failed, CL_OUT_OF_RESOURCES);
	struct command c = {.queue = queue, .link = queue->link, .session = queue->link->session};
	IS(command_reads(&c, m), CL_OUT_OF_RESOURCES);
	ob_clReleaseMemObject(m);
	device_sessions[0].dead = 1;
	IS(no_buffer(0, 8, NULL), CL_DEVICE_NOT_AVAILABLE);
	device_sessions[0].dead = 0;
	CHECK(device_links[0].memory_used == 0 && device_objects() == 0);
}

static cl_mem part_of(cl_mem whole, cl_mem_flags flags, size_t at, size_t n, cl_int *status) {
	cl_buffer_region region = {at, n};
	return ob_clCreateSubBuffer(whole, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, status);
}

static void parts(void) {
	cl_int status;
	fill(host, size);
	cl_mem whole = buffer_of(CL_MEM_USE_HOST_PTR | CL_MEM_READ_ONLY, size, host);
	CHECK(!part_of(whole, 0, 8, 8, &status) && status == CL_MISALIGNED_SUB_BUFFER_OFFSET);
	CHECK(!part_of(whole, 0, ALIGN, size, &status) && status == CL_INVALID_VALUE);
	CHECK(!part_of(whole, 0, ALIGN, 0, &status) && status == CL_INVALID_BUFFER_SIZE);
	CHECK(!part_of(whole, CL_MEM_READ_WRITE, ALIGN, 8, &status) && status == CL_INVALID_VALUE);
	CHECK(!part_of(whole, CL_MEM_COPY_HOST_PTR, ALIGN, 8, &status) && status == CL_INVALID_VALUE);
	cl_mem part = part_of(whole, 0, 2 * ALIGN, 512, &status);
	IS(status, 0);
	CHECK(!part_of(part, 0, 0, 8, &status) && status == CL_INVALID_MEM_OBJECT);
	CHECK(part->flags == (CL_MEM_USE_HOST_PTR | CL_MEM_READ_ONLY) && number_of(part, CL_MEM_OFFSET) == 2 * ALIGN);
	CHECK(number_of(part, CL_MEM_HOST_PTR) == (size_t)(host + 2 * ALIGN) && number_of(part, CL_MEM_ASSOCIATED_MEMOBJECT) == (size_t)whole);
	CHECK(number_of(whole, CL_MEM_REFERENCE_COUNT) == 2);
	CHECK(device_links[0].memory_used == size);
	ob_clReleaseMemObject(whole);
	unsigned char *p = map(part, 1, CL_MAP_WRITE, 100, 10, NULL);
	CHECK(p == host + 2 * ALIGN + 100 && maps_of(part) == 0 && maps_of(whole) == 1);
	memset(p, 7, 10);
	IS(unmap(part, p), 0);
	CHECK(memcmp(device_bytes(0, whole), host, size) == 0);
	ob_clReleaseMemObject(part);
	CHECK(device_links[0].memory_used == 0 && device_objects() == 0);
}

struct box {
	size_t from[3], to[3], region[3], from_row, from_slice, to_row, to_slice;
};

static size_t pitch(size_t least) { return any(2) ? least : least + any(9); }

static struct box any_box(void) {
	struct box b = {{any(5), any(4), any(3)}, {any(5), any(4), any(3)}, {1 + any(12), 1 + any(4), 1 + any(3)}, 0, 0, 0, 0};
	b.from_row = pitch(b.region[0]);
	b.from_slice = b.from_row * pitch(b.region[1]);
	b.to_row = pitch(b.region[0]);
	b.to_slice = b.to_row * pitch(b.region[1]);
	return b;
}

static void copy_box(unsigned char *to, const unsigned char *from, const struct box *b) {
	for (size_t z = 0; z < b->region[2]; z++)
		for (size_t y = 0; y < b->region[1]; y++)
			memcpy(to + b->to[0] + (b->to[1] + y) * b->to_row + (b->to[2] + z) * b->to_slice,
				from + b->from[0] + (b->from[1] + y) * b->from_row + (b->from[2] + z) * b->from_slice, b->region[0]);
}

/* Random rectangles against plain loops. */
static void rectangles(void) {
	cl_mem m = buffer_of(0, size, NULL);
	for (int i = 0; i < 3000; i++) {
		struct box b = any_box();
		size_t from_slice = any(2) && b.from_slice == b.region[1] * b.from_row ? 0 : b.from_slice;
		size_t from_row = any(2) && b.from_row == b.region[0] ? 0 : b.from_row, to_row = b.to_row == b.region[0] ? 0 : b.to_row;
		fill(host, size);
		memcpy(device_bytes(0, m), host, size);
		memset(want, 0, size);
		memset(other, 0, size);
		int blocking = (int)any(2);
		IS(ob_clEnqueueReadBufferRect(queue, m, blocking, b.from, b.to, b.region, from_row, from_slice, to_row, b.to_slice, other, 0, NULL, NULL), 0);
		IS(device_deliver(0), !blocking);
		copy_box(want, host, &b);
		CHECK(memcmp(want, other, size) == 0);
		memset(device_bytes(0, m), 0, size);
		IS(ob_clEnqueueWriteBufferRect(queue, m, blocking, b.to, b.from, b.region, to_row, b.to_slice, from_row, from_slice, host, 0, NULL, NULL), 0);
		CHECK(memcmp(want, device_bytes(0, m), size) == 0);
		device_log_clear();
	}
	static const size_t zero[3], region[3] = {16, 4, 2}, huge[3] = {SIZE_MAX / 2, SIZE_MAX / 2, 3}, top[3] = {0, SIZE_MAX / 16, 0};
	IS(ob_clEnqueueReadBufferRect(queue, m, 1, zero, zero, region, 15, 0, 0, 0, other, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clEnqueueReadBufferRect(queue, m, 1, zero, zero, region, 16, 65, 0, 0, other, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clEnqueueReadBufferRect(queue, m, 1, zero, zero, region, 0, 0, 16, 40, other, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clEnqueueReadBufferRect(queue, m, 1, zero, zero, huge, 0, 0, 0, 0, other, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clEnqueueReadBufferRect(queue, m, 1, top, zero, region, 0, 0, 0, 0, other, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clEnqueueReadBufferRect(queue, m, 1, NULL, zero, region, 0, 0, 0, 0, other, 0, NULL, NULL), CL_INVALID_VALUE);
	ob_clReleaseMemObject(m);
}

/* Compares the specification's overlap test with marked bytes. A wrong result may only be a
 * refusal. */
static void overlaps(void) {
	cl_mem m = buffer_of(0, size, NULL);
	int overlapping = 0;
	for (int i = 0; i < 4000; i++) {
		struct box b = any_box();
		memset(want, 0, size);
		size_t row = b.from_row, slice = b.from_slice;
		int hit = 0;
		for (int pass = 0; pass < 2; pass++)
			for (size_t z = 0; z < b.region[2]; z++)
				for (size_t y = 0; y < b.region[1]; y++)
					for (size_t x = 0; x < b.region[0]; x++) {
						const size_t *o = pass ? b.to : b.from;
						unsigned char *p = &want[o[0] + x + (o[1] + y) * row + (o[2] + z) * slice];
						hit |= pass && *p;
						*p |= !pass;
					}
		int got = check_clEnqueueCopyBufferRect(queue, m, m, b.from, b.to, b.region, row, slice, row, slice, 0, NULL, NULL);
		CHECK(got == 0 || got == CL_MEM_COPY_OVERLAP);
		CHECK(!hit || got == CL_MEM_COPY_OVERLAP);
		overlapping += hit;
	}
	CHECK(overlapping > 100 && overlapping < 3900);
	IS(check_clEnqueueCopyBuffer(queue, m, m, 0, 10, 20, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
	IS(check_clEnqueueCopyBuffer(queue, m, m, 0, 20, 20, 0, NULL, NULL), 0);
	IS(check_clEnqueueCopyBuffer(queue, m, m, 20, 0, 20, 0, NULL, NULL), 0);
	IS(check_clEnqueueCopyBuffer(queue, m, m, 0, 0, 0, 0, NULL, NULL), CL_INVALID_VALUE);
	cl_int status;
	cl_mem a = part_of(m, 0, 0, 1024, &status), b = part_of(m, 0, 512, 1024, &status);
	IS(check_clEnqueueCopyBuffer(queue, a, b, 500, 0, 20, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
	IS(check_clEnqueueCopyBuffer(queue, a, b, 0, 0, 20, 0, NULL, NULL), 0);
	IS(check_clEnqueueFillBuffer(queue, a, host, 4, 4, 8, 0, NULL, NULL), 0);
	IS(check_clEnqueueFillBuffer(queue, a, host, 4, 2, 8, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(check_clEnqueueFillBuffer(queue, a, host, 3, 3, 9, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(check_clEnqueueFillBuffer(queue, a, host, 256, 0, 256, 0, NULL, NULL), CL_INVALID_VALUE);
	ob_clReleaseMemObject(a);
	ob_clReleaseMemObject(b);
	ob_clReleaseMemObject(m);
}

/* Simulates a kernel that has written the object. */
static void kernel_wrote(cl_mem m) { atomic_fetch_add(&m->root->version, 1); }

/* Current mapped memory is not read again, and mapping it with an idle queue sends nothing. */
static void current_maps(void) {
	cl_mem m = buffer_of(0, size, NULL);
	unsigned char *device = device_bytes(0, m);
	device_log_clear();
	unsigned char *a = map(m, 1, CL_MAP_READ, 0, size, NULL);
	IS(unmap(m, a), 0);
	CHECK(strcmp(device_log, "") == 0); /* its contents are undefined */
	a = map(m, 1, CL_MAP_WRITE, 10, 10, NULL);
	memset(a, 7, 10);
	IS(unmap(m, a), 0);
	CHECK(strcmp(device_log, "0 write at=10 size=10\n") == 0 && device[10] == 7 && device[19] == 7);
	device_log_clear();
	a = map(m, 1, CL_MAP_READ, 0, size, NULL);
	CHECK(strcmp(device_log, "") == 0 && a[10] == 7);
	IS(unmap(m, a), 0);
	fill(device, size);
	kernel_wrote(m);
	a = map(m, 1, CL_MAP_READ, 0, 100, NULL);
	CHECK(strcmp(device_log, "0 read at=0 size=100\n") == 0 && memcmp(a, device, 100) == 0);
	IS(unmap(m, a), 0);
	a = map(m, 1, CL_MAP_READ, 0, size, NULL); /* the part that was read is not the whole */
	CHECK(memcmp(a, device, size) == 0);
	IS(unmap(m, a), 0);
	device_log_clear();
	a = map(m, 1, CL_MAP_READ, 50, 100, NULL);
	CHECK(strcmp(device_log, "") == 0 && memcmp(a, device + 50, 100) == 0);
	IS(unmap(m, a), 0);
	IS(ob_clEnqueueWriteBuffer(queue, m, 1, 60, 8, want, 0, NULL, NULL), 0);
	a = map(m, 1, CL_MAP_READ, 0, size, NULL);
	CHECK(memcmp(a, device, size) == 0);
	IS(unmap(m, a), 0);
	cl_event event;
	device_log_clear();
	a = map(m, 1, CL_MAP_READ, 0, size, &event);
	CHECK(strcmp(device_log, "0 marker\n") == 0); /* for the event */
	object_release(event);
	IS(unmap(m, a), 0);
	ob_clReleaseMemObject(m);
}

static void maps(void) {
	cl_mem m = buffer_of(0, size, NULL);
	unsigned char *device = device_bytes(0, m);
	fill(device, size);
	kernel_wrote(m);
	memcpy(want, device, size);
	device_log_clear();
	unsigned char *a = map(m, 1, CL_MAP_READ, 0, 1000, NULL), *b = map(m, 1, CL_MAP_READ, 500, 1000, NULL);
	CHECK(a + 500 == b && memcmp(a, want, 1500) == 0 && maps_of(m) == 2);
	CHECK(strcmp(device_log, "0 read at=0 size=1000\n0 read at=500 size=1000\n") == 0);
	device_log_clear();
	IS(unmap(m, a), 0);
	IS(unmap(m, b), 0);
	CHECK(strcmp(device_log, "") == 0 && maps_of(m) == 0);
	IS(unmap(m, b), CL_INVALID_VALUE);
	IS(unmap(m, NULL), CL_INVALID_VALUE);
	device_log_clear();
	a = map(m, 1, CL_MAP_WRITE, 100, 10, NULL);
	CHECK(memcmp(a, want + 100, 10) == 0);
	a[3] ^= 0xff, want[103] ^= 0xff;
	b = map(m, 1, CL_MAP_WRITE_INVALIDATE_REGION, 200, 10, NULL);
	memset(b, 9, 10), memset(want + 200, 9, 10);
	CHECK(strcmp(device_log, "0 read at=100 size=10\n") == 0);
	device_log_clear();
	IS(ob_clEnqueueUnmapMemObject(queue, m, b, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
	CHECK(maps_of(m) == 2);
	IS(unmap(m, b), 0);
	IS(unmap(m, a), 0);
	CHECK(strcmp(device_log, "0 write at=200 size=10\n0 write at=100 size=10\n") == 0 && memcmp(device, want, size) == 0);
	/* A map retains its object. */
	a = map(m, 1, CL_MAP_READ, 0, 8, NULL);
	ob_clReleaseMemObject(m);
	CHECK(device_links[0].memory_used == size && memcmp(a, want, 8) == 0);
	IS(unmap(m, a), 0);
	CHECK(device_links[0].memory_used == 0);
}

/* Data that has not arrived cannot have been written, and must not be pushed. */
static void late_maps(void) {
	cl_mem m = buffer_of(0, size, NULL);
	unsigned char *device = device_bytes(0, m);
	fill(device, size);
	kernel_wrote(m);
	memcpy(want, device, size);
	cl_event event;
	unsigned char *a = map(m, 0, CL_MAP_WRITE, 0, 100, &event);
	CHECK(event->command == CL_COMMAND_MAP_BUFFER);
	IS(unmap(m, a), 0);
	CHECK(memcmp(device, want, size) == 0);
	IS(device_deliver(0), 1);
	object_release(event);
	a = map(m, 0, CL_MAP_WRITE, 0, 100, &event);
	IS(device_deliver(0), 1);
	CHECK(memcmp(a, want, 100) == 0);
	a[0] ^= 1, want[0] ^= 1;
	IS(unmap(m, a), 0);
	CHECK(memcmp(device, want, size) == 0);
	object_release(event);
	a = map(m, 0, CL_MAP_WRITE, 0, 100, &event);
	IS(device_deliver(CL_OUT_OF_RESOURCES), 1);
	IS(event->status, CL_OUT_OF_RESOURCES);
	memset(a, 0, 100);
	IS(unmap(m, a), 0);
	CHECK(memcmp(device, want, size) == 0);
	IS(queue->sticky, CL_OUT_OF_RESOURCES);
	IS(ob_clEnqueueWriteBuffer(queue, m, 1, 0, 8, want, 0, NULL, NULL), CL_OUT_OF_RESOURCES);
	IS(ob_clEnqueueWriteBuffer(queue, m, 1, 0, 8, want, 0, NULL, NULL), 0);
	object_release(event);
	/* The data of a read may arrive after the program has released everything. */
	IS(ob_clEnqueueReadBuffer(queue, m, 0, 8, 8, other, 0, NULL, &event), 0);
	a = map(m, 0, CL_MAP_READ, 0, 100, NULL);
	IS(unmap(m, a), 0);
	object_release(event);
	ob_clReleaseMemObject(m);
	CHECK(device_objects() == 1);
	IS(device_deliver(0), 2);
	CHECK(memcmp(other, want + 8, 8) == 0 && device_objects() == 0);
}

static cl_int destroyed[3];
static int destroyed_count;
static void CL_CALLBACK note(cl_mem m, void *data) {
	CHECK(m);
	destroyed[destroyed_count++] = *(cl_int *)data;
}

static void destructors(void) {
	cl_int marks[] = {1, 2, 3};
	cl_mem m = buffer_of(0, size, NULL);
	for (int i = 0; i < 3; i++)
		IS(ob_clSetMemObjectDestructorCallback(m, note, &marks[i]), 0);
	IS(ob_clSetMemObjectDestructorCallback(m, NULL, NULL), CL_INVALID_VALUE);
	ob_clRetainMemObject(m);
	ob_clReleaseMemObject(m);
	CHECK(destroyed_count == 0);
	ob_clReleaseMemObject(m);
	CHECK(destroyed_count == 3 && destroyed[0] == 3 && destroyed[1] == 2 && destroyed[2] == 1);
}

static const cl_image_format rgba = {CL_RGBA, CL_UNORM_INT8}, wide = {CL_RGBA, CL_FLOAT}, red = {CL_R, CL_FLOAT};

static cl_mem image_of(cl_mem_flags flags, const cl_image_format *format, cl_image_desc d, void *at) {
	cl_int status = 1;
	cl_mem m = ob_clCreateImage(context, flags, format, &d, at, &status);
	IS(status, 0);
	return m;
}

static int no_image(cl_mem_flags flags, const cl_image_format *format, cl_image_desc d, void *at) {
	cl_int status = 1;
	CHECK(!ob_clCreateImage(context, flags, format, &d, at, &status));
	return status;
}

#define DESC(type, ...) ((cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE##type, __VA_ARGS__})

static void images_refused(void) {
	IS(no_image(0, &rgba, DESC(2D, .image_width = 8), NULL), CL_INVALID_IMAGE_DESCRIPTOR);
	IS(no_image(0, &rgba, DESC(2D, .image_width = 8, .image_height = 5000), NULL), CL_INVALID_IMAGE_SIZE);
	IS(no_image(0, &rgba, DESC(2D_ARRAY, .image_width = 8, .image_height = 8, .image_array_size = 65), NULL), CL_INVALID_IMAGE_SIZE);
	IS(no_image(0, &rgba, DESC(2D, .image_width = 8, .image_height = 8, .image_row_pitch = 32), NULL), CL_INVALID_IMAGE_DESCRIPTOR);
	IS(no_image(CL_MEM_COPY_HOST_PTR, &rgba, DESC(2D, .image_width = 8, .image_height = 8, .image_row_pitch = 30), host), CL_INVALID_IMAGE_DESCRIPTOR);
	IS(no_image(CL_MEM_COPY_HOST_PTR, &rgba, DESC(2D, .image_width = 8, .image_height = 8), NULL), CL_INVALID_HOST_PTR);
	IS(no_image(0, &rgba, DESC(2D, .image_width = 8, .image_height = 8, .num_samples = 1), NULL), CL_INVALID_IMAGE_DESCRIPTOR);
	IS(no_image(0, &rgba, DESC(1D_BUFFER, .image_width = 8), NULL), CL_INVALID_IMAGE_DESCRIPTOR);
	cl_image_format none = {77, CL_FLOAT}, absent = {CL_RG, CL_HALF_FLOAT};
	IS(no_image(0, &none, DESC(1D, .image_width = 8), NULL), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
	IS(no_image(0, &absent, DESC(1D, .image_width = 8), NULL), CL_IMAGE_FORMAT_NOT_SUPPORTED);
	IS(no_image(0, &absent, DESC(1D, .image_width = 9), NULL), CL_IMAGE_FORMAT_NOT_SUPPORTED);
	CHECK(device_calls == 1); /* the second query is answered from the cache */
	cl_int status;
	CHECK(!ob_clCreateImage2D(context, 0, &rgba, 0, 8, 0, NULL, &status) && status == CL_INVALID_IMAGE_SIZE);
	CHECK(!ob_clCreateImage(context, 0, NULL, NULL, NULL, &status) && status == CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
	CHECK(!ob_clCreateImage(context, 0, &rgba, NULL, NULL, &status) && status == CL_INVALID_IMAGE_DESCRIPTOR);
}

/* One image of each type: queries, maps and transfers. Expected: pitches, size, slice pitch of a
 * map. */
static void images(void) {
	static const struct {
		cl_image_desc desc;
		size_t row, slice, bytes, extent[3];
	} table[] = {
		{DESC(1D, .image_width = 10, .image_height = 77), 40, 0, 40, {10, 1, 1}},
		{DESC(2D, .image_width = 10, .image_height = 6, .image_depth = 3), 40, 0, 240, {10, 6, 1}},
		{DESC(3D, .image_width = 10, .image_height = 6, .image_depth = 3), 40, 240, 720, {10, 6, 3}},
		{DESC(1D_ARRAY, .image_width = 10, .image_array_size = 4), 40, 40, 160, {10, 4, 1}},
		{DESC(2D_ARRAY, .image_width = 10, .image_height = 6, .image_array_size = 4), 40, 240, 960, {10, 6, 4}},
		{DESC(2D, .image_width = 10, .image_height = 6, .image_row_pitch = 48), 48, 0, 288, {10, 6, 1}},
		{DESC(3D, .image_width = 10, .image_height = 6, .image_depth = 3, .image_row_pitch = 44, .image_slice_pitch = 308), 44, 308, 924, {10, 6, 3}},
		{DESC(1D_ARRAY, .image_width = 10, .image_array_size = 4, .image_slice_pitch = 80), 40, 80, 320, {10, 4, 1}},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (int use = 0; use < 2; use++) {
			fill(host, size);
			memcpy(want, host, size);
			cl_mem m = image_of(use ? CL_MEM_USE_HOST_PTR : CL_MEM_COPY_HOST_PTR, &rgba, table[i].desc, host);
			size_t got[2], row = 1, slice = 1;
			IS(ob_clGetImageInfo(m, CL_IMAGE_ROW_PITCH, 8, &got[0], NULL), 0);
			IS(ob_clGetImageInfo(m, CL_IMAGE_SLICE_PITCH, 8, &got[1], NULL), 0);
			CHECK(got[0] == table[i].row && got[1] == table[i].slice && number_of(m, CL_MEM_SIZE) == table[i].bytes);
			CHECK(memcmp(m->image.extent, table[i].extent, sizeof m->image.extent) == 0);
			size_t origin[3] = {2, table[i].extent[1] > 1, table[i].extent[2] > 1}, region[3] = {5, table[i].extent[1] - origin[1], table[i].extent[2] - origin[2]};
			size_t y = table[i].desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? table[i].slice : table[i].row, z = table[i].slice;
			cl_int status;
			unsigned char *p = ob_clEnqueueMapImage(queue, m, 1, CL_MAP_WRITE, origin, region, &row, &slice, 0, NULL, NULL, &status);
			IS(status, 0);
			size_t map_y = use ? y : 40, map_z = use ? z : 40 * table[i].extent[1];
			CHECK(row == (use ? table[i].row : 40) && slice == (image_sliced(m->type) ? use ? table[i].slice : m->image.shadow_slice : 0));
			CHECK(!use || p == host + 8 + origin[1] * y + origin[2] * z);
			for (size_t d = 0; d < region[2]; d++)
				for (size_t r = 0; r < region[1]; r++)
					CHECK(memcmp(p + r * map_y + d * map_z, want + 8 + (origin[1] + r) * y + (origin[2] + d) * z, 20) == 0);
			p[1] ^= 0xff;
			IS(unmap(m, p), 0);
			memset(other, 0, size);
			size_t zero[3] = {0};
			IS(ob_clEnqueueReadImage(queue, m, 1, zero, table[i].extent, table[i].row, image_sliced(m->type) ? table[i].slice : 0, other, 0, NULL, NULL), 0);
			want[9 + origin[1] * y + origin[2] * z] ^= 0xff;
			for (size_t d = 0; d < table[i].extent[2]; d++)
				for (size_t r = 0; r < table[i].extent[1]; r++)
					CHECK(memcmp(other + r * y + d * z, want + r * y + d * z, 40) == 0);
			IS(ob_clEnqueueReadImage(queue, m, 1, origin, table[i].extent, 0, 0, other, 0, NULL, NULL), CL_INVALID_VALUE);
			IS(ob_clEnqueueReadImage(queue, m, 1, zero, table[i].extent, 36, 0, other, 0, NULL, NULL), CL_INVALID_VALUE);
			CHECK(!ob_clEnqueueMapImage(queue, m, 1, CL_MAP_READ, zero, region, NULL, NULL, 0, NULL, NULL, &status) && status == CL_INVALID_VALUE);
			ob_clReleaseMemObject(m);
			CHECK(device_links[0].memory_used == 0);
		}
}

static void images_of(void) {
	cl_mem buffer = buffer_of(CL_MEM_ALLOC_HOST_PTR, 1024, NULL), a, b;
	fill(device_bytes(0, buffer), 1024);
	memcpy(want, device_bytes(0, buffer), 1024);
	kernel_wrote(buffer);
	a = image_of(0, &rgba, DESC(1D_BUFFER, .image_width = 256, .mem_object = buffer), NULL);
	IS(no_image(0, &rgba, DESC(1D_BUFFER, .image_width = 257, .mem_object = buffer), NULL), CL_INVALID_IMAGE_DESCRIPTOR);
	IS(no_image(0, &rgba, DESC(2D, .image_width = 8, .image_height = 8, .image_row_pitch = 64, .mem_object = buffer), NULL), CL_INVALID_OPERATION);
	device_pitch_alignment = 16;
	IS(no_image(0, &rgba, DESC(2D, .image_width = 8, .image_height = 8, .image_row_pitch = 36, .mem_object = buffer), NULL), CL_INVALID_IMAGE_DESCRIPTOR);
	device_log_clear();
	b = image_of(0, &rgba, DESC(2D, .image_width = 8, .image_height = 8, .image_row_pitch = 64, .mem_object = buffer), NULL);
	CHECK(strstr(device_log, "0 image type=10f1 flags=1 8x8x0 layers=0 pitches=64,0 of=1 bulk=-1\n"));
	CHECK(b->flags == CL_MEM_ALLOC_HOST_PTR && device_links[0].memory_used == 1024);
	cl_int status;
	size_t origin[3] = {1, 2, 0}, region[3] = {3, 2, 1}, row, all[3] = {256, 1, 1}, zero[3] = {0};
	unsigned char *p = ob_clEnqueueMapImage(queue, b, 1, CL_MAP_READ, origin, region, &row, NULL, 0, NULL, NULL, &status);
	unsigned char *q = map(buffer, 1, CL_MAP_READ, 0, 1024, NULL);
	CHECK(row == 64 && p == q + 4 + 2 * 64 && memcmp(q, want, 1024) == 0 && maps_of(buffer) == 2);
	IS(unmap(b, p), 0);
	IS(unmap(buffer, q), 0);
	IS(ob_clEnqueueReadImage(queue, a, 1, zero, all, 0, 0, other, 0, NULL, NULL), 0);
	CHECK(memcmp(other, want, 1024) == 0);
	IS(check_clEnqueueCopyImageToBuffer(queue, b, buffer, origin, region, 1000, 0, NULL, NULL), 0);
	IS(check_clEnqueueCopyImageToBuffer(queue, b, buffer, origin, region, 1001, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(check_clEnqueueCopyBufferToImage(queue, buffer, b, 1024, origin, region, 0, NULL, NULL), CL_INVALID_VALUE);
	cl_mem c = image_of(0, &red, DESC(2D, .image_width = 8, .image_height = 8), NULL);
	IS(check_clEnqueueCopyImage(queue, b, c, origin, origin, region, 0, NULL, NULL), CL_IMAGE_FORMAT_MISMATCH);
	IS(check_clEnqueueCopyImage(queue, c, c, origin, origin, region, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
	IS(check_clEnqueueCopyImage(queue, c, c, origin, (size_t[]){1, 4, 0}, region, 0, NULL, NULL), 0);
	IS(check_clEnqueueFillImage(queue, c, host, (size_t[]){6, 0, 0}, region, 0, NULL, NULL), CL_INVALID_VALUE);
	ob_clReleaseMemObject(buffer);
	ob_clReleaseMemObject(a);
	ob_clReleaseMemObject(b);
	ob_clReleaseMemObject(c);
	CHECK(device_links[0].memory_used == 0 && device_objects() == 0);
}

/* Two links: an object is copied to the link that uses it, after the commands that wrote it, and
 * only if it has changed. */
static void links(void) {
	cl_context both = test_context(2);
	cl_command_queue here = test_queue(both, 0), there = test_queue(both, 1);
	cl_context mine = context;
	context = both;
	fill(host, size);
	cl_mem m = buffer_of(CL_MEM_COPY_HOST_PTR, size, host), large = buffer_of(0, LARGEST, NULL);
	CHECK(memcmp(device_bytes(1, m), host, size) == 0);
	struct command c = {.queue = here, .link = here->link, .session = here->link->session};
	struct command d = {.queue = there, .link = there->link, .session = there->link->session};
	device_log_clear();
	IS(command_reads(&c, m), 0);
	IS(command_reads(&d, m), 0);
	IS(command_reads(&d, large), CL_MEM_OBJECT_ALLOCATION_FAILURE);
	CHECK(device_log[0] == 0);
	IS(command_writes(&c, m), 0); /* as a kernel would */
	fill(device_bytes(0, m), size);
	IS(command_reads(&c, m), 0);
	CHECK(device_log[0] == 0);
	IS(ob_clEnqueueReadBuffer(there, m, 1, 0, size, other, 0, NULL, NULL), 0);
	CHECK(memcmp(other, device_bytes(0, m), size) == 0);
	CHECK(strcmp(device_log, "0 finish\n0 queue\n1 queue\n0 read at=0 size=4096\n1 write at=0 size=4096\n1 wait\n1 read at=0 size=4096\n") == 0);
	device_log_clear();
	IS(command_reads(&c, m), 0);
	IS(ob_clEnqueueWriteBuffer(there, m, 1, 8, 8, want, 0, NULL, NULL), 0);
	IS(ob_clEnqueueWriteBuffer(here, m, 1, 0, size, want, 0, NULL, NULL), 0); /* replaces everything: nothing is copied */
	CHECK(strcmp(device_log, "1 write at=8 size=8\n0 write at=0 size=4096\n") == 0);
	CHECK(m->current == 1);
	device_sessions[0].dead = 1;
	IS(command_reads(&d, m), CL_DEVICE_NOT_AVAILABLE);
	device_sessions[0].dead = 0;
	cl_mem image = image_of(0, &wide, DESC(2D, .image_width = 4, .image_height = 4), NULL);
	CHECK(image->o.links == 2); /* the other link lacks the format */
	cl_mem image2 = image_of(0, &rgba, DESC(2D, .image_width = 4, .image_height = 4), NULL);
	IS(command_writes(&d, image2), 0);
	fill(device_bytes(1, image2), 64);
	IS(command_writes(&c, image2), 0);
	CHECK(memcmp(device_bytes(0, image2), device_bytes(1, image2), 64) == 0 && image2->current == 1);
	cl_uint formats;
	IS(ob_clGetSupportedImageFormats(both, 0, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &formats), 0);
	IS(formats, 3);
	ob_clReleaseMemObject(m);
	ob_clReleaseMemObject(large);
	ob_clReleaseMemObject(image);
	ob_clReleaseMemObject(image2);
	object_release(here);
	object_release(there);
	object_release(both);
	CHECK(device_objects() == 0);
	context = mine;
}

static void the_rest(void) {
	cl_int status;
	cl_sampler_properties list[] = {CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, CL_SAMPLER_NORMALIZED_COORDS, CL_FALSE, 0};
	cl_sampler s = ob_clCreateSamplerWithProperties(context, list, &status);
	IS(status, 0);
	CHECK(strcmp(device_log, "0 sampler 0 1132 1141\n") == 0);
	size_t n = 0;
	IS(ob_clGetSamplerInfo(s, CL_SAMPLER_PROPERTIES, 0, NULL, &n), 0);
	CHECK(n == sizeof list);
	cl_sampler_properties twice[] = {CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, 0};
	CHECK(!ob_clCreateSamplerWithProperties(context, twice, &status) && status == CL_INVALID_VALUE);
	CHECK(!ob_clCreateSampler(context, CL_FALSE, CL_ADDRESS_REPEAT, CL_FILTER_NEAREST, &status) && status == CL_INVALID_VALUE);
	CHECK(!ob_clCreateSampler(context, 2, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &status) && status == CL_INVALID_VALUE);
	ob_clReleaseSampler(s);
	cl_mem p = ob_clCreatePipe(context, 0, 16, 4, NULL, &status);
	IS(status, 0);
	CHECK(!ob_clCreatePipe(context, 0, 2000, 4, NULL, &status) && status == CL_INVALID_PIPE_SIZE);
	CHECK(!ob_clCreatePipe(context, CL_MEM_READ_ONLY, 16, 4, NULL, &status) && status == CL_INVALID_VALUE);
	cl_uint packets;
	IS(ob_clGetPipeInfo(p, CL_PIPE_MAX_PACKETS, 4, &packets, NULL), 0);
	IS(packets, 4);
	IS(ob_clEnqueueReadBuffer(queue, p, 1, 0, 8, host, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
	cl_mem m = buffer_of(0, size, NULL), none = NULL;
	device_log_clear();
	IS(ob_clEnqueueMigrateMemObjects(queue, 1, &m, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL), 0);
	CHECK(strcmp(device_log, "0 migrate 1 flags=1\n") == 0);
	IS(ob_clEnqueueMigrateMemObjects(queue, 0, &m, 0, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clEnqueueMigrateMemObjects(queue, 1, &none, 0, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
	IS(ob_clEnqueueMigrateMemObjects(queue, 1, &m, 64, 0, NULL, NULL), CL_INVALID_VALUE);
	IS(ob_clGetPipeInfo(m, CL_PIPE_MAX_PACKETS, 4, &packets, NULL), CL_INVALID_MEM_OBJECT);
	IS(ob_clGetImageInfo(m, CL_IMAGE_WIDTH, 8, &n, NULL), CL_INVALID_MEM_OBJECT);
	ob_clReleaseMemObject(m);
	ob_clReleaseMemObject(p);
	cl_context elsewhere = test_context(1);
	cl_mem foreign = ob_clCreateBuffer(elsewhere, 0, size, NULL, NULL);
	IS(ob_clEnqueueReadBuffer(queue, foreign, 1, 0, 8, host, 0, NULL, NULL), CL_INVALID_CONTEXT);
	IS(ob_clEnqueueMigrateMemObjects(queue, 1, &foreign, 0, 0, NULL, NULL), CL_INVALID_CONTEXT);
	ob_clReleaseMemObject(foreign);
	object_release(elsewhere);
}

/* Creates an allocation of that size, without an address yet. */
static cl_mem shared_of(size_t n) {
	int32_t status;
	cl_mem m = mem_new_root(context, CL_MEM_OBJECT_BUFFER, CL_MEM_USE_HOST_PTR, n, n, 1, &status);
	IS(status, 0);
	m->svm = 1;
	return m;
}

/* A worker may report any address: addresses that the program uses are refused, and the memory
 * there is not changed. */
static void shared_places(void) {
	unsigned char local[64], *heap = malloc(1 << 20);
	memset(local, 1, sizeof local);
	memset(heap, 2, 1 << 20);
	unsigned char *own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(own, 3, 8192);
	const uint64_t refused[] = {0, 1, 4096, 65535, (uintptr_t)local, (uintptr_t)local - 100000, (uintptr_t)heap, (uintptr_t)own, (uintptr_t)own - 4096,
		(uintptr_t)shared_places, (uintptr_t)&context, UINT64_MAX, UINT64_MAX - 4095, (uint64_t)1 << 47, ((uint64_t)1 << 47) - 4096, (uint64_t)1 << 63};
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		cl_mem m = shared_of(3 * 4096);
		CHECK(!svm_place(m, refused[i]));
		m->host_ptr = NULL;
		object_drop(m);
	}
	for (size_t i = 0; i < sizeof local; i++)
		CHECK(local[i] == 1);
	for (size_t i = 0; i < 1 << 20; i++)
		CHECK(heap[i] == 2);
	for (size_t i = 0; i < 8192; i++)
		CHECK(own[i] == 3);
	munmap(own, 8192);
	free(heap);
}

static void shared_lookups(void) {
	static const uint64_t first = 0x300000000000, apart = 1 << 20;
	cl_mem all[5];
	size_t at = 0;
	for (uint64_t i = 0; i < 5; i++) {
		uint64_t address = first + (i * 3 % 5) * apart + 100 * i;
		all[i] = shared_of(5000 + i);
		CHECK(svm_place(all[i], address));
		memset(all[i]->host_ptr, 1, 5000 + i);
		cl_mem twice = shared_of(10);
		CHECK(!svm_place(twice, address));
		object_drop(twice);
	}
	for (uint64_t i = 0; i < 5; i++) {
		unsigned char *p = all[i]->host_ptr;
		CHECK(svm_find(context, p, 5000, &at) == all[i] && at == 0);
		CHECK(svm_find(context, p + 4999, 1, &at) == all[i] && at == 4999);
		CHECK(svm_find(context, p + 5000 + i, 0, &at) == all[i]);
		CHECK(!svm_find(context, p + 4999, 10, &at) && !svm_find(context, p - 1, 1, &at) && !svm_find(context, p, SIZE_MAX, &at));
		CHECK(!svm_find(NULL, p, 1, &at) && !svm_remove(context, p + 1));
		for (int held = 0; held < 3; held++)
			object_drop(all[i]);
	}
	for (uint64_t i = 0; i < 5; i++) {
		unsigned char *p = all[i]->host_ptr;
		CHECK(svm_remove(context, p) == all[i] && !svm_remove(context, p) && !svm_find(context, p, 1, &at));
		object_drop(all[i]);
		CHECK(msync((void *)((uintptr_t)p & ~(uintptr_t)4095), 1, MS_ASYNC) != 0); /* the pages are unmapped */
	}
	CHECK(device_links[0].memory_used == 0);
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"layouts", layouts}, {"refused", refused}, {"counted", counted}, {"parts", parts}, {"rectangles", rectangles},
		{"overlaps", overlaps}, {"maps", maps}, {"current_maps", current_maps}, {"late_maps", late_maps}, {"destructors", destructors},
		{"images_refused", images_refused}, {"images", images}, {"images_of", images_of}, {"links", links}, {"the_rest", the_rest},
		{"shared_places", shared_places}, {"shared_lookups", shared_lookups},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (argc < 2)
			puts(cases[i].name);
		else if (strcmp(argv[1], cases[i].name) == 0) {
			context = test_context(1);
			queue = test_queue(context, 0);
			cases[i].run();
			object_release(queue);
			object_release(context);
		}
	}
	return 0;
}
