// Buffers: creation with every flag, transfers, rectangles, fills, copies, sub-buffers, queries,
// callbacks.
#include "clt.h"

#include <stdatomic.h>

enum { size = 4096 };

static unsigned char host[size], other[size], want[size];

static void write_all(cl_mem buffer, const void *bytes) {
	MUST(clEnqueueWriteBuffer(clt_queue(), buffer, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
}

static void read_all(cl_mem buffer, void *bytes) {
	MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
}

static const char *short_name(cl_int code) { return code == CL_SUCCESS ? "ok" : clt_name(code); }

// --- creation -----------------------------------------------------------------------------------

static const struct {
	const char *name;
	cl_mem_flags flags;
} access_flags[] = {
	{"none", 0},
	{"rw", CL_MEM_READ_WRITE},
	{"r", CL_MEM_READ_ONLY},
	{"w", CL_MEM_WRITE_ONLY},
	{"rw|r", CL_MEM_READ_WRITE | CL_MEM_READ_ONLY},
	{"r|w", CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY},
}, host_flags[] = {
	{"", 0},
	{"hr", CL_MEM_HOST_READ_ONLY},
	{"hw", CL_MEM_HOST_WRITE_ONLY},
	{"hn", CL_MEM_HOST_NO_ACCESS},
	{"hr|hw", CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY},
	{"hr|hn", CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS},
}, pointer_flags[] = {
	{"", 0},
	{"use", CL_MEM_USE_HOST_PTR},
	{"alloc", CL_MEM_ALLOC_HOST_PTR},
	{"copy", CL_MEM_COPY_HOST_PTR},
	{"use|alloc", CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR},
	{"use|copy", CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR},
	{"alloc|copy", CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *try_map(cl_mem buffer, cl_map_flags how) {
	cl_int code;
	void *at = clEnqueueMapBuffer(clt_queue(), buffer, CL_TRUE, how, 16, 64, 0, NULL, NULL, &code);
	CHECK((at != NULL) == (code == CL_SUCCESS));
	if (at)
		MUST(clEnqueueUnmapMemObject(clt_queue(), buffer, at, 0, NULL, NULL));
	MUST(clFinish(clt_queue()));
	return short_name(code);
}

static void try_created(const char *what, cl_mem buffer, bool filled) {
	cl_mem_flags flags = 0;
	MUST(clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
	memset(other, 0, size);
	cl_int read = clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, 0, size, other, 0, NULL, NULL);
	const char *content = !filled ? "undefined" : memcmp(other, host, size) == 0 ? "right" : "wrong";
	cl_int write = clEnqueueWriteBuffer(clt_queue(), buffer, CL_TRUE, 8, 8, want, 0, NULL, NULL);
	const char *map_read = try_map(buffer, CL_MAP_READ);
	const char *map_write = try_map(buffer, CL_MAP_WRITE);
	const char *map_over = try_map(buffer, CL_MAP_WRITE_INVALIDATE_REGION);
	clt_say(what, "flags=%#x read=%s %s write=%s map r=%s w=%s over=%s", (unsigned)flags, short_name(read),
		read == CL_SUCCESS ? content : "-", short_name(write), map_read, map_write, map_over);
}

static void create_one(size_t a, size_t h, size_t p, bool pointer) {
	cl_mem_flags flags = access_flags[a].flags | host_flags[h].flags | pointer_flags[p].flags;
	char what[64];
	snprintf(what, sizeof what, "%s %s %s %s", access_flags[a].name, host_flags[h].name, pointer_flags[p].name,
		pointer ? "pointer" : "null");
	clt_fill(host, size, 3);
	cl_int code = 1;
	cl_mem buffer = clCreateBuffer(clt_context(), flags, size, pointer ? host : NULL, &code);
	CHECK((buffer != NULL) == (code == CL_SUCCESS));
	if (!buffer) {
		clt_say(what, "%s", clt_name(code));
		return;
	}
	try_created(what, buffer, pointer);
	MUST(clReleaseMemObject(buffer));
}

static void create_flags(void) {
	for (size_t a = 0; a < COUNT(access_flags); a++)
		for (size_t h = 0; h < COUNT(host_flags); h++)
			for (size_t p = 0; p < COUNT(pointer_flags); p++)
				for (int pointer = 0; pointer < 2; pointer++)
					create_one(a, h, p, pointer);
}

static void expect_no_buffer(const char *what, cl_context context, cl_mem_flags flags, size_t bytes, void *at) {
	cl_int code = 1;
	cl_mem buffer = clCreateBuffer(context, flags, bytes, at, &code);
	clt_code(code, "%s", what);
	if (buffer)
		clReleaseMemObject(buffer);
	CHECK(clCreateBuffer(context, flags, bytes, at, NULL) == NULL || code == CL_SUCCESS);
}

static void create_refused(void) {
	cl_ulong most = 0;
	MUST(clGetDeviceInfo(clt_device(), CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL));
	expect_no_buffer("no context", NULL, 0, size, NULL);
	expect_no_buffer("size 0", clt_context(), 0, 0, NULL);
	expect_no_buffer("size above the most", clt_context(), 0, most + 1, NULL);
	expect_no_buffer("size almost all ones", clt_context(), 0, SIZE_MAX - 7, NULL);
	expect_no_buffer("unknown flag", clt_context(), (cl_mem_flags)1 << 40, size, NULL);
	expect_no_buffer("pointer without a flag", clt_context(), CL_MEM_READ_WRITE, size, host);
	expect_no_buffer("copy without a pointer", clt_context(), CL_MEM_COPY_HOST_PTR, size, NULL);
}

static void create_properties(void) {
	if (clt_version() < 30)
		clt_skip("needs OpenCL 3.0");
	cl_mem_properties none[] = {0}, unknown[] = {0x12345, 1, 0};
	cl_int code;
	cl_mem buffer = clCreateBufferWithProperties(clt_context(), NULL, CL_MEM_READ_ONLY, size, NULL, &code);
	clt_code(code, "null");
	size_t bytes = 77;
	clt_code(clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, 0, NULL, &bytes), "query of null");
	clt_say("bytes of null", "%zu", bytes);
	MUST(clReleaseMemObject(buffer));
	buffer = clCreateBufferWithProperties(clt_context(), none, CL_MEM_READ_ONLY, size, NULL, &code);
	clt_code(code, "empty");
	clt_code(clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, 0, NULL, &bytes), "query of empty");
	clt_say("bytes of empty", "%zu", bytes);
	MUST(clReleaseMemObject(buffer));
	CHECK(clCreateBufferWithProperties(clt_context(), unknown, 0, size, NULL, &code) == NULL);
	clt_code(code, "unknown");
}

// --- queries ------------------------------------------------------------------------------------

static void query_one(cl_mem object, cl_mem_info name, const char *what, size_t bytes) {
	unsigned char value[64];
	size_t actual = 99;
	memset(value, 0xee, sizeof value);
	clt_code(clGetMemObjectInfo(object, name, sizeof value, value, &actual), "%s", what);
	clt_say(what, "%zu bytes", actual);
	CHECK(actual == bytes && value[bytes] == 0xee);
	clt_code(clGetMemObjectInfo(object, name, bytes - 1, value, NULL), "%s, too short", what);
	clt_code(clGetMemObjectInfo(object, name, 0, NULL, &actual), "%s, size only", what);
	clt_code(clGetMemObjectInfo(object, name, 0, NULL, NULL), "%s, nothing", what);
}

static cl_ulong query_number(cl_mem object, cl_mem_info name) {
	cl_ulong value = 0;
	MUST(clGetMemObjectInfo(object, name, sizeof value, &value, NULL));
	return value;
}

static void info(void) {
	cl_mem buffer = clt_buffer(CL_MEM_USE_HOST_PTR | CL_MEM_READ_ONLY, size, host);
	query_one(buffer, CL_MEM_TYPE, "type", sizeof(cl_mem_object_type));
	query_one(buffer, CL_MEM_FLAGS, "flags", sizeof(cl_mem_flags));
	query_one(buffer, CL_MEM_SIZE, "size", sizeof(size_t));
	query_one(buffer, CL_MEM_HOST_PTR, "host pointer", sizeof(void *));
	query_one(buffer, CL_MEM_MAP_COUNT, "map count", sizeof(cl_uint));
	query_one(buffer, CL_MEM_REFERENCE_COUNT, "references", sizeof(cl_uint));
	query_one(buffer, CL_MEM_CONTEXT, "context", sizeof(cl_context));
	query_one(buffer, CL_MEM_ASSOCIATED_MEMOBJECT, "parent", sizeof(cl_mem));
	query_one(buffer, CL_MEM_OFFSET, "offset", sizeof(size_t));
	clt_say("values", "type=%#x flags=%#x size=%u maps=%u parent=%u offset=%u",
		(unsigned)query_number(buffer, CL_MEM_TYPE), (unsigned)query_number(buffer, CL_MEM_FLAGS),
		(unsigned)query_number(buffer, CL_MEM_SIZE), (unsigned)query_number(buffer, CL_MEM_MAP_COUNT),
		(unsigned)query_number(buffer, CL_MEM_ASSOCIATED_MEMOBJECT), (unsigned)query_number(buffer, CL_MEM_OFFSET));
	CHECK(query_number(buffer, CL_MEM_HOST_PTR) == (uintptr_t)host);
	CHECK(query_number(buffer, CL_MEM_CONTEXT) == (uintptr_t)clt_context());
	unsigned char value[8];
	clt_code(clGetMemObjectInfo(buffer, 0x9999, 8, value, NULL), "unknown name");
	clt_code(clGetMemObjectInfo(NULL, CL_MEM_SIZE, 8, value, NULL), "no object");
	clt_code(clGetImageInfo(buffer, CL_IMAGE_WIDTH, 8, value, NULL), "image query of a buffer");
	MUST(clReleaseMemObject(buffer));
	cl_mem plain = clt_buffer(0, size, NULL), copied = clt_buffer(CL_MEM_COPY_HOST_PTR, size, host);
	clt_say("plain", "flags=%#x host=%d", (unsigned)query_number(plain, CL_MEM_FLAGS),
		query_number(plain, CL_MEM_HOST_PTR) != 0);
	clt_say("copied", "flags=%#x host=%d", (unsigned)query_number(copied, CL_MEM_FLAGS),
		query_number(copied, CL_MEM_HOST_PTR) != 0);
	MUST(clReleaseMemObject(plain));
	MUST(clReleaseMemObject(copied));
}

static void references(void) {
	cl_mem buffer = clt_buffer(0, size, NULL);
	clt_say("new", "%u", (unsigned)query_number(buffer, CL_MEM_REFERENCE_COUNT));
	MUST(clRetainMemObject(buffer));
	MUST(clRetainMemObject(buffer));
	clt_say("retained twice", "%u", (unsigned)query_number(buffer, CL_MEM_REFERENCE_COUNT));
	MUST(clReleaseMemObject(buffer));
	clt_say("released", "%u", (unsigned)query_number(buffer, CL_MEM_REFERENCE_COUNT));
	MUST(clReleaseMemObject(buffer));
	MUST(clReleaseMemObject(buffer));
	clt_code(clRetainMemObject(NULL), "retain null");
	clt_code(clReleaseMemObject(NULL), "release null");
}

// --- transfers ----------------------------------------------------------------------------------

static void transfer(void) {
	cl_mem buffer = clt_buffer(CL_MEM_READ_WRITE, size, NULL);
	clt_fill(host, size, 5);
	write_all(buffer, host);
	static const size_t spans[][2] = {{0, 1}, {1, 1}, {3, 5}, {7, 64}, {4095, 1}, {1, 4095}, {1000, 2047}};
	for (size_t i = 0; i < COUNT(spans); i++) {
		clt_fill(other, size, 100 + (uint32_t)i);
		MUST(clEnqueueWriteBuffer(clt_queue(), buffer, CL_TRUE, spans[i][0], spans[i][1], other, 0, NULL, NULL));
		memcpy(host + spans[i][0], other, spans[i][1]);
		memset(other, 0xaa, size);
		MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, spans[i][0], spans[i][1], other, 0, NULL, NULL));
		CHECK(memcmp(other, host + spans[i][0], spans[i][1]) == 0);
		CHECK(spans[i][1] == size || other[spans[i][1]] == 0xaa);
	}
	read_all(buffer, other);
	CHECK(memcmp(other, host, size) == 0);
	clt_say("content", "%016llx", (unsigned long long)clt_hash(other, size));
	MUST(clReleaseMemObject(buffer));
}

// Larger than any queue or ring on the path, and not a multiple of any block size.
static void transfer_large(void) {
	size_t bytes = 37 * 1024 * 1024 + 13;
	unsigned char *in = malloc(bytes), *out = calloc(1, bytes);
	clt_fill(in, bytes, 77);
	cl_mem buffer = clt_buffer(CL_MEM_READ_WRITE, bytes, NULL);
	MUST(clEnqueueWriteBuffer(clt_queue(), buffer, CL_FALSE, 0, bytes, in, 0, NULL, NULL));
	MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_FALSE, 1, bytes - 1, out, 0, NULL, NULL));
	MUST(clFinish(clt_queue()));
	CHECK(memcmp(in + 1, out, bytes - 1) == 0 && out[bytes - 1] == 0);
	cl_mem copied = clt_buffer(CL_MEM_COPY_HOST_PTR, bytes, in);
	memset(in, 0, bytes);
	MUST(clEnqueueReadBuffer(clt_queue(), copied, CL_TRUE, 1, bytes - 1, in, 0, NULL, NULL));
	CHECK(memcmp(in, out, bytes - 1) == 0);
	MUST(clReleaseMemObject(buffer));
	MUST(clReleaseMemObject(copied));
	free(in);
	free(out);
}

// Memory of a non-blocking write may be reused when its event is complete; of a blocking one at
// once.
static void transfer_reuse(void) {
	cl_mem buffer = clt_buffer(CL_MEM_READ_WRITE, size * 16, NULL);
	for (unsigned i = 0; i < 16; i++) {
		cl_event done;
		memset(host, (int)i, size);
		MUST(clEnqueueWriteBuffer(clt_queue(), buffer, i % 2, i * size, size, host, 0, NULL, &done));
		if (i % 2 == 0)
			MUST(clWaitForEvents(1, &done));
		memset(host, 0xff, size);
		MUST(clReleaseEvent(done));
	}
	for (unsigned i = 0; i < 16; i++) {
		MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, i * size, size, other, 0, NULL, NULL));
		CHECK(other[0] == i && other[size - 1] == i);
	}
	MUST(clReleaseMemObject(buffer));
}

static void transfer_refused(void) {
	cl_mem buffer = clt_buffer(CL_MEM_READ_WRITE, size, NULL);
	cl_context elsewhere = clt_new_context();
	cl_command_queue foreign = clt_new_queue(elsewhere, 0);
	cl_command_queue q = clt_queue();
	cl_event none = NULL;
	clt_code(clEnqueueReadBuffer(NULL, buffer, CL_TRUE, 0, 8, other, 0, NULL, NULL), "no queue");
	clt_code(clEnqueueReadBuffer(q, NULL, CL_TRUE, 0, 8, other, 0, NULL, NULL), "no buffer");
	clt_code(clEnqueueReadBuffer(q, buffer, CL_TRUE, 0, 8, NULL, 0, NULL, NULL), "no pointer");
	clt_code(clEnqueueReadBuffer(q, buffer, CL_TRUE, 0, 0, other, 0, NULL, NULL), "size 0");
	clt_code(clEnqueueReadBuffer(q, buffer, CL_TRUE, size, 1, other, 0, NULL, NULL), "offset at the end");
	clt_code(clEnqueueReadBuffer(q, buffer, CL_TRUE, 1, size, other, 0, NULL, NULL), "1 byte too many");
	clt_code(clEnqueueReadBuffer(q, buffer, CL_TRUE, SIZE_MAX, 2, other, 0, NULL, NULL), "sum wraps");
	clt_code(clEnqueueReadBuffer(q, buffer, CL_TRUE, 0, 8, other, 1, NULL, NULL), "count without list");
	clt_code(clEnqueueReadBuffer(q, buffer, CL_TRUE, 0, 8, other, 0, &none, NULL), "list without count");
	clt_code(clEnqueueReadBuffer(q, buffer, CL_TRUE, 0, 8, other, 1, &none, NULL), "null in list");
	clt_code(clEnqueueReadBuffer(foreign, buffer, CL_TRUE, 0, 8, other, 0, NULL, NULL), "other context");
	clt_code(clEnqueueWriteBuffer(q, NULL, CL_TRUE, 0, 8, other, 0, NULL, NULL), "write: no buffer");
	clt_code(clEnqueueWriteBuffer(q, buffer, CL_TRUE, 0, 8, NULL, 0, NULL, NULL), "write: no pointer");
	clt_code(clEnqueueWriteBuffer(q, buffer, CL_FALSE, 0, 0, other, 0, NULL, NULL), "write: size 0");
	clt_code(clEnqueueWriteBuffer(q, buffer, CL_FALSE, 9, size, other, 0, NULL, NULL), "write: too many");
	clt_code(clEnqueueWriteBuffer(foreign, buffer, CL_FALSE, 0, 8, other, 0, NULL, NULL), "write: other context");
	MUST(clReleaseCommandQueue(foreign));
	MUST(clReleaseContext(elsewhere));
	MUST(clReleaseMemObject(buffer));
}

// --- rectangles ---------------------------------------------------------------------------------

struct box {
	size_t from[3], to[3], region[3], from_row, from_slice, to_row, to_slice;
};

static size_t row_of(size_t row, const size_t *region) { return row ? row : region[0]; }

static size_t slice_of(size_t slice, size_t row, const size_t *region) {
	return slice ? slice : row_of(row, region) * region[1];
}

static void copy_box(unsigned char *to, const unsigned char *from, const struct box *b) {
	size_t fr = row_of(b->from_row, b->region), fs = slice_of(b->from_slice, b->from_row, b->region);
	size_t tr = row_of(b->to_row, b->region), ts = slice_of(b->to_slice, b->to_row, b->region);
	for (size_t z = 0; z < b->region[2]; z++)
		for (size_t y = 0; y < b->region[1]; y++)
			memcpy(to + b->to[0] + (b->to[1] + y) * tr + (b->to[2] + z) * ts,
				from + b->from[0] + (b->from[1] + y) * fr + (b->from[2] + z) * fs, b->region[0]);
}

static const struct box boxes[] = {
	{.region = {64, 4, 2}},
	{.region = {5, 3, 2}, .from_row = 16, .to_row = 32},
	{.from = {3, 1, 1}, .to = {1, 2, 0}, .region = {7, 5, 3}, .from_row = 20, .from_slice = 200, .to_row = 11, .to_slice = 121},
	{.from = {0, 0, 2}, .to = {0, 0, 1}, .region = {1, 1, 1}, .from_row = 1, .from_slice = 1, .to_row = 2, .to_slice = 6},
	{.from = {8, 0, 0}, .to = {0, 3, 0}, .region = {8, 8, 1}, .from_row = 64, .to_row = 8},
};

static void rectangles(void) {
	cl_mem a = clt_buffer(CL_MEM_READ_WRITE, size, NULL), b = clt_buffer(CL_MEM_READ_WRITE, size, NULL);
	cl_command_queue q = clt_queue();
	for (size_t i = 0; i < COUNT(boxes); i++) {
		const struct box *x = &boxes[i];
		clt_fill(host, size, 20 + (uint32_t)i);
		memset(want, 0, size);
		write_all(a, want);
		MUST(clEnqueueWriteBufferRect(q, a, CL_TRUE, x->to, x->from, x->region, x->to_row, x->to_slice, x->from_row,
			x->from_slice, host, 0, NULL, NULL));
		copy_box(want, host, x);
		read_all(a, other);
		CHECK(memcmp(other, want, size) == 0);
		write_all(a, host);
		memset(want, 0, size);
		memset(other, 0, size);
		MUST(clEnqueueReadBufferRect(q, a, CL_TRUE, x->from, x->to, x->region, x->from_row, x->from_slice, x->to_row,
			x->to_slice, other, 0, NULL, NULL));
		copy_box(want, host, x);
		CHECK(memcmp(other, want, size) == 0);
		memset(other, 0, size);
		write_all(b, other);
		MUST(clEnqueueCopyBufferRect(q, a, b, x->from, x->to, x->region, x->from_row, x->from_slice, x->to_row,
			x->to_slice, 0, NULL, NULL));
		read_all(b, other);
		CHECK(memcmp(other, want, size) == 0);
	}
	MUST(clReleaseMemObject(a));
	MUST(clReleaseMemObject(b));
}

static void rectangles_refused(void) {
	cl_mem a = clt_buffer(CL_MEM_READ_WRITE, size, NULL);
	cl_command_queue q = clt_queue();
	static const size_t zero[3], region[3] = {16, 4, 2}, flat[3] = {16, 0, 1}, far[3] = {4090, 0, 0}, near[3] = {8, 0, 0};
#define READ_RECT(at, region, row, slice, host_row, host_slice, pointer) \
	clEnqueueReadBufferRect(q, a, CL_TRUE, at, zero, region, row, slice, host_row, host_slice, pointer, 0, NULL, NULL)
	clt_code(READ_RECT(zero, region, 0, 0, 0, 0, NULL), "no pointer");
	clt_code(READ_RECT(zero, flat, 0, 0, 0, 0, other), "region with 0");
	clt_code(READ_RECT(far, region, 0, 0, 0, 0, other), "outside");
	clt_code(READ_RECT(zero, region, 15, 0, 0, 0, other), "row pitch below the row");
	clt_code(READ_RECT(zero, region, 16, 63, 0, 0, other), "slice pitch below the slice");
	clt_code(READ_RECT(zero, region, 16, 65, 0, 0, other), "slice pitch no multiple of the row pitch");
	clt_code(READ_RECT(zero, region, 0, 0, 8, 0, other), "host row pitch below the row");
	clt_code(READ_RECT(zero, region, 0, 0, 16, 40, other), "host slice pitch below the slice");
	clt_code(clEnqueueCopyBufferRect(q, a, a, zero, zero, region, 0, 0, 0, 0, 0, NULL, NULL), "copy onto itself");
	clt_code(clEnqueueCopyBufferRect(q, a, a, zero, near, region, 64, 0, 64, 0, 0, NULL, NULL), "copy overlapping");
	clt_code(clEnqueueCopyBufferRect(q, a, a, zero, near, region, 64, 0, 32, 0, 0, NULL, NULL), "copy, pitches differ");
	clt_code(clEnqueueWriteBufferRect(q, a, CL_TRUE, far, zero, region, 0, 0, 0, 0, other, 0, NULL, NULL), "write outside");
#undef READ_RECT
	MUST(clFinish(q));
	MUST(clReleaseMemObject(a));
}

// --- fills, copies, migrations ------------------------------------------------------------------

static void fill(void) {
	cl_mem a = clt_buffer(CL_MEM_READ_WRITE, size, NULL);
	for (size_t pattern = 1; pattern <= 128; pattern *= 2) {
		memset(host, 0, size);
		write_all(a, host);
		unsigned char bytes[128];
		clt_fill(bytes, sizeof bytes, (uint32_t)pattern);
		MUST(clEnqueueFillBuffer(clt_queue(), a, bytes, pattern, pattern * 3, pattern * 7, 0, NULL, NULL));
		memset(want, 0, size);
		for (size_t i = 0; i < 7; i++)
			memcpy(want + pattern * (3 + i), bytes, pattern);
		memset(bytes, 0, sizeof bytes);
		read_all(a, other);
		CHECK(memcmp(other, want, size) == 0);
		clt_say("pattern", "%zu %016llx", pattern, (unsigned long long)clt_hash(other, size));
	}
	cl_command_queue q = clt_queue();
	clt_code(clEnqueueFillBuffer(q, a, host, 3, 0, 9, 0, NULL, NULL), "pattern of 3");
	clt_code(clEnqueueFillBuffer(q, a, host, 0, 0, 8, 0, NULL, NULL), "pattern of 0");
	clt_code(clEnqueueFillBuffer(q, a, host, 256, 0, 256, 0, NULL, NULL), "pattern of 256");
	clt_code(clEnqueueFillBuffer(q, a, NULL, 4, 0, 8, 0, NULL, NULL), "no pattern");
	clt_code(clEnqueueFillBuffer(q, a, host, 4, 2, 8, 0, NULL, NULL), "offset not aligned");
	clt_code(clEnqueueFillBuffer(q, a, host, 4, 4, 6, 0, NULL, NULL), "size not aligned");
	clt_code(clEnqueueFillBuffer(q, a, host, 4, 4, size, 0, NULL, NULL), "outside");
	clt_code(clEnqueueFillBuffer(q, a, host, 4, 4, 0, 0, NULL, NULL), "size 0");
	clt_code(clEnqueueFillBuffer(q, NULL, host, 4, 4, 8, 0, NULL, NULL), "no buffer");
	MUST(clFinish(q));
	MUST(clReleaseMemObject(a));
}

static void copy(void) {
	cl_mem a = clt_buffer(CL_MEM_READ_WRITE, size, NULL), b = clt_buffer(CL_MEM_READ_WRITE, size, NULL);
	clt_fill(host, size, 31);
	clt_fill(want, size, 32);
	write_all(a, host);
	write_all(b, want);
	MUST(clEnqueueCopyBuffer(clt_queue(), a, b, 17, 1000, 999, 0, NULL, NULL));
	memcpy(want + 1000, host + 17, 999);
	MUST(clEnqueueCopyBuffer(clt_queue(), b, b, 1000, 0, 1000, 0, NULL, NULL));
	memcpy(want, want + 1000, 1000);
	read_all(b, other);
	CHECK(memcmp(other, want, size) == 0);
	cl_command_queue q = clt_queue();
	clt_code(clEnqueueCopyBuffer(q, a, b, 0, 0, 0, 0, NULL, NULL), "size 0");
	clt_code(clEnqueueCopyBuffer(q, a, b, 1, 0, size, 0, NULL, NULL), "source outside");
	clt_code(clEnqueueCopyBuffer(q, a, b, 0, 1, size, 0, NULL, NULL), "destination outside");
	clt_code(clEnqueueCopyBuffer(q, a, a, 0, 10, 20, 0, NULL, NULL), "overlap");
	clt_code(clEnqueueCopyBuffer(q, NULL, a, 0, 10, 20, 0, NULL, NULL), "no source");
	clt_code(clEnqueueCopyBuffer(q, a, NULL, 0, 10, 20, 0, NULL, NULL), "no destination");
	MUST(clFinish(q));
	MUST(clReleaseMemObject(a));
	MUST(clReleaseMemObject(b));
}

static void migrate(void) {
	cl_mem both[2] = {clt_buffer(0, size, NULL), clt_buffer(CL_MEM_USE_HOST_PTR, size, host)}, none = NULL;
	cl_command_queue q = clt_queue();
	cl_event done;
	clt_fill(want, size, 8);
	write_all(both[0], want);
	MUST(clEnqueueMigrateMemObjects(q, 2, both, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, &done));
	MUST(clWaitForEvents(1, &done));
	MUST(clReleaseEvent(done));
	MUST(clEnqueueMigrateMemObjects(q, 2, both, 0, 0, NULL, NULL));
	read_all(both[0], other);
	CHECK(memcmp(other, want, size) == 0);
	MUST(clEnqueueMigrateMemObjects(q, 1, both, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL));
	clt_code(clEnqueueMigrateMemObjects(q, 0, NULL, 0, 0, NULL, NULL), "no objects");
	clt_code(clEnqueueMigrateMemObjects(q, 0, both, 0, 0, NULL, NULL), "count 0");
	clt_code(clEnqueueMigrateMemObjects(q, 1, &none, 0, 0, NULL, NULL), "null object");
	clt_code(clEnqueueMigrateMemObjects(q, 1, both, 64, 0, NULL, NULL), "unknown flag");
	MUST(clFinish(q));
	MUST(clReleaseMemObject(both[0]));
	MUST(clReleaseMemObject(both[1]));
}

// --- sub-buffers --------------------------------------------------------------------------------

static cl_mem part_of(cl_mem parent, cl_mem_flags flags, size_t origin, size_t bytes, cl_int *code) {
	cl_buffer_region region = {origin, bytes};
	return clCreateSubBuffer(parent, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, code);
}

static void sub_buffer(void) {
	cl_int code;
	cl_mem parent = clt_buffer(CL_MEM_READ_WRITE, size, NULL);
	clt_fill(host, size, 40);
	write_all(parent, host);
	cl_mem a = part_of(parent, 0, 512, 1024, &code), b = part_of(parent, 0, 1024, 1024, &code);
	MUST(code);
	clt_say("a", "offset=%u size=%u flags=%#x", (unsigned)query_number(a, CL_MEM_OFFSET),
		(unsigned)query_number(a, CL_MEM_SIZE), (unsigned)query_number(a, CL_MEM_FLAGS));
	CHECK(query_number(a, CL_MEM_ASSOCIATED_MEMOBJECT) == (uintptr_t)parent);
	clt_say("parent's references", "%u", (unsigned)query_number(parent, CL_MEM_REFERENCE_COUNT));
	memset(other, 0x11, size);
	MUST(clEnqueueWriteBuffer(clt_queue(), a, CL_TRUE, 100, 700, other, 0, NULL, NULL));
	memset(host + 612, 0x11, 700);
	MUST(clEnqueueFillBuffer(clt_queue(), b, "\x22", 1, 8, 16, 0, NULL, NULL));
	memset(host + 1032, 0x22, 16);
	read_all(parent, other);
	CHECK(memcmp(other, host, size) == 0);
	MUST(clEnqueueReadBuffer(clt_queue(), a, CL_TRUE, 512, 64, other, 0, NULL, NULL));
	CHECK(memcmp(other, host + 1024, 64) == 0);
	MUST(clEnqueueCopyBuffer(clt_queue(), b, a, 512, 0, 64, 0, NULL, NULL));
	memcpy(host + 512, host + 1536, 64);
	MUST(clReleaseMemObject(a));
	MUST(clReleaseMemObject(b));
	read_all(parent, other);
	CHECK(memcmp(other, host, size) == 0);
	MUST(clReleaseMemObject(parent));
}

static void sub_buffer_alone(void) {
	cl_int code;
	cl_mem parent = clt_buffer(CL_MEM_READ_WRITE, size, NULL);
	cl_mem part = part_of(parent, 0, 1024, 1024, &code);
	MUST(code);
	MUST(clReleaseMemObject(parent));
	clt_fill(host, 1024, 41);
	MUST(clEnqueueWriteBuffer(clt_queue(), part, CL_TRUE, 0, 1024, host, 0, NULL, NULL));
	MUST(clEnqueueReadBuffer(clt_queue(), part, CL_TRUE, 0, 1024, other, 0, NULL, NULL));
	CHECK(memcmp(host, other, 1024) == 0);
	MUST(clReleaseMemObject(part));
}

static void sub_buffer_kernel(void) {
	cl_program program = clt_build("kernel void add(global uint *to, global const uint *from) {"
		"size_t i = get_global_id(0); to[i] += from[i] * 3; }", NULL);
	cl_kernel kernel = clt_kernel(program, "add");
	cl_int code;
	cl_mem parent = clt_buffer(CL_MEM_READ_WRITE, size, NULL);
	clt_fill(host, size, 42);
	write_all(parent, host);
	cl_mem to = part_of(parent, CL_MEM_READ_WRITE, 1024, 512, &code);
	cl_mem from = part_of(parent, CL_MEM_READ_ONLY, 2048, 512, &code);
	MUST(code);
	MUST(clSetKernelArg(kernel, 0, sizeof to, &to));
	MUST(clSetKernelArg(kernel, 1, sizeof from, &from));
	size_t items = 128;
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
	read_all(parent, other);
	for (size_t i = 0; i < items; i++) {
		uint32_t x, y;
		memcpy(&x, host + 1024 + i * 4, 4);
		memcpy(&y, host + 2048 + i * 4, 4);
		x += y * 3;
		memcpy(host + 1024 + i * 4, &x, 4);
	}
	CHECK(memcmp(host, other, size) == 0);
	MUST(clReleaseMemObject(to));
	MUST(clReleaseMemObject(from));
	MUST(clReleaseMemObject(parent));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

static void sub_buffer_flags(void) {
	for (size_t a = 0; a < 4; a++)
		for (size_t b = 0; b < COUNT(access_flags); b++) {
			cl_int code;
			cl_mem parent = clt_buffer(access_flags[a].flags, size, NULL);
			cl_mem part = part_of(parent, access_flags[b].flags, 0, 1024, &code);
			clt_code(code, "%s of %s", access_flags[b].name, access_flags[a].name);
			if (part) {
				clt_say("flags", "%#x", (unsigned)query_number(part, CL_MEM_FLAGS));
				clReleaseMemObject(part);
			}
			clReleaseMemObject(parent);
		}
	for (size_t a = 0; a < 4; a++)
		for (size_t b = 0; b < 4; b++) {
			cl_int code;
			cl_mem parent = clt_buffer(host_flags[a].flags, size, NULL);
			cl_mem part = part_of(parent, host_flags[b].flags, 0, 1024, &code);
			clt_code(code, "host '%s' of '%s'", host_flags[b].name, host_flags[a].name);
			if (part)
				clReleaseMemObject(part);
			clReleaseMemObject(parent);
		}
}

static void refuse_part(const char *what, cl_mem parent, cl_mem_flags flags, cl_buffer_create_type type, const void *region) {
	cl_int code = 1;
	cl_mem part = clCreateSubBuffer(parent, flags, type, region, &code);
	clt_code(code, "%s", what);
	if (part)
		clReleaseMemObject(part);
}

static void sub_buffer_refused(void) {
	cl_int code;
	cl_mem parent = clt_buffer(0, size, NULL), used = clt_buffer(CL_MEM_USE_HOST_PTR, size, host);
	cl_mem part = part_of(parent, 0, 1024, 1024, &code);
	MUST(code);
	cl_buffer_region good = {0, 16}, empty = {0, 0}, wide = {1024, size}, off = {4, 16}, far = {size, 16};
	refuse_part("no parent", NULL, 0, CL_BUFFER_CREATE_TYPE_REGION, &good);
	refuse_part("unknown type", parent, 0, 0x9999, &good);
	refuse_part("no region", parent, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL);
	refuse_part("size 0", parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &empty);
	refuse_part("too wide", parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &wide);
	refuse_part("not aligned", parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &off);
	refuse_part("at the end", parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &far);
	refuse_part("part of a part", part, 0, CL_BUFFER_CREATE_TYPE_REGION, &good);
	refuse_part("with host pointer flag", used, CL_MEM_USE_HOST_PTR, CL_BUFFER_CREATE_TYPE_REGION, &good);
	refuse_part("with copy flag", used, CL_MEM_COPY_HOST_PTR, CL_BUFFER_CREATE_TYPE_REGION, &good);
	refuse_part("with alloc flag", used, CL_MEM_ALLOC_HOST_PTR, CL_BUFFER_CREATE_TYPE_REGION, &good);
	refuse_part("unknown flag", parent, (cl_mem_flags)1 << 40, CL_BUFFER_CREATE_TYPE_REGION, &good);
	clt_code(clEnqueueReadBuffer(clt_queue(), part, CL_TRUE, 1, 1024, other, 0, NULL, NULL), "read past the part");
	MUST(clReleaseMemObject(part));
	part = part_of(used, 0, 1024, 1024, &code);
	MUST(code);
	clt_say("part of used memory", "flags=%#x", (unsigned)query_number(part, CL_MEM_FLAGS));
	CHECK(query_number(part, CL_MEM_HOST_PTR) == (uintptr_t)(host + 1024));
	MUST(clReleaseMemObject(part));
	MUST(clReleaseMemObject(parent));
	MUST(clReleaseMemObject(used));
}

// --- destructor callbacks -----------------------------------------------------------------------

static char called[8];
static atomic_int calls;

static void CL_CALLBACK note(cl_mem object, void *data) {
	(void)object;
	int at = atomic_fetch_add(&calls, 1);
	if (at < 7)
		called[at] = (char)(uintptr_t)data;
}

// The callbacks run in the reverse order, once the last reference and the last command are gone.
static void destructors(void) {
	cl_mem buffer = clt_buffer(0, size, NULL);
	atomic_store(&calls, 0);
	memset(called, 0, sizeof called);
	MUST(clSetMemObjectDestructorCallback(buffer, note, (void *)(uintptr_t)'a'));
	MUST(clSetMemObjectDestructorCallback(buffer, note, (void *)(uintptr_t)'b'));
	MUST(clSetMemObjectDestructorCallback(buffer, note, (void *)(uintptr_t)'c'));
	clt_code(clSetMemObjectDestructorCallback(buffer, NULL, NULL), "no function");
	clt_code(clSetMemObjectDestructorCallback(NULL, note, NULL), "no object");
	MUST(clRetainMemObject(buffer));
	MUST(clReleaseMemObject(buffer));
	CHECK(atomic_load(&calls) == 0);
	MUST(clEnqueueFillBuffer(clt_queue(), buffer, "x", 1, 0, size, 0, NULL, NULL));
	MUST(clReleaseMemObject(buffer));
	MUST(clFinish(clt_queue()));
	for (uint64_t until = clt_now() + 5000000000u; atomic_load(&calls) < 3 && clt_now() < until;)
		;
	clt_say("order", "%s", called);
}

// --- a long random walk against a plain array ---------------------------------------------------

static void walk_step(cl_mem buffer, uint32_t *state) {
	size_t at = clt_random(state) % size, bytes = 1 + clt_random(state) % (size - at);
	cl_command_queue q = clt_queue();
	cl_int code;
	switch (clt_random(state) % 5) {
	case 0:
		clt_fill(other, bytes, *state);
		MUST(clEnqueueWriteBuffer(q, buffer, CL_TRUE, at, bytes, other, 0, NULL, NULL));
		memcpy(want + at, other, bytes);
		break;
	case 1:
		MUST(clEnqueueReadBuffer(q, buffer, CL_TRUE, at, bytes, other, 0, NULL, NULL));
		CHECK(memcmp(other, want + at, bytes) == 0);
		break;
	case 2:
		other[0] = (unsigned char)*state;
		MUST(clEnqueueFillBuffer(q, buffer, other, 1, at, bytes, 0, NULL, NULL));
		memset(want + at, other[0], bytes);
		break;
	case 3: {
		size_t half = bytes / 2;
		if (half == 0)
			break;
		MUST(clEnqueueCopyBuffer(q, buffer, buffer, at, at + half, half, 0, NULL, NULL));
		memcpy(want + at + half, want + at, half);
		break;
	}
	default: {
		cl_map_flags how = clt_random(state) % 2 ? CL_MAP_READ | CL_MAP_WRITE : CL_MAP_WRITE_INVALIDATE_REGION;
		unsigned char *p = clEnqueueMapBuffer(q, buffer, CL_TRUE, how, at, bytes, 0, NULL, NULL, &code);
		MUST(code);
		CHECK(how == CL_MAP_WRITE_INVALIDATE_REGION || memcmp(p, want + at, bytes) == 0);
		clt_fill(p, bytes, *state);
		memcpy(want + at, p, bytes);
		MUST(clEnqueueUnmapMemObject(q, buffer, p, 0, NULL, NULL));
	}
	}
}

static void walk(void) {
	static const cl_mem_flags kinds[] = {0, CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR, CL_MEM_COPY_HOST_PTR};
	for (size_t k = 0; k < COUNT(kinds); k++) {
		bool pointer = kinds[k] & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
		uint32_t state = 12345 + (uint32_t)k;
		memset(host, 0, size);
		memset(want, 0, size);
		cl_mem buffer = clt_buffer(kinds[k], size, pointer ? host : NULL);
		write_all(buffer, want);
		for (int i = 0; i < 400; i++)
			walk_step(buffer, &state);
		read_all(buffer, other);
		CHECK(memcmp(other, want, size) == 0);
		clt_say("content", "%016llx", (unsigned long long)clt_hash(other, size));
		MUST(clReleaseMemObject(buffer));
	}
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"create_flags", create_flags},
		{"create_refused", create_refused},
		{"create_properties", create_properties},
		{"info", info},
		{"references", references},
		{"transfer", transfer},
		{"transfer_large", transfer_large},
		{"transfer_reuse", transfer_reuse},
		{"transfer_refused", transfer_refused},
		{"rectangles", rectangles},
		{"rectangles_refused", rectangles_refused},
		{"fill", fill},
		{"copy", copy},
		{"migrate", migrate},
		{"sub_buffer", sub_buffer},
		{"sub_buffer_alone", sub_buffer_alone},
		{"sub_buffer_kernel", sub_buffer_kernel},
		{"sub_buffer_flags", sub_buffer_flags},
		{"sub_buffer_refused", sub_buffer_refused},
		{"destructors", destructors},
		{"walk", walk},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
