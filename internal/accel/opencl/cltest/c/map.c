// Maps of buffers: partial, overlapping, nested, invalidating, of sub-buffers, of the program's own
// memory.
#include "clt.h"

enum { size = 8192 };

static unsigned char host[size] __attribute__((aligned(4096))), other[size], want[size];

static void *map(cl_mem buffer, cl_map_flags how, size_t at, size_t bytes) {
	cl_int code;
	void *p = clEnqueueMapBuffer(clt_queue(), buffer, CL_TRUE, how, at, bytes, 0, NULL, NULL, &code);
	MUST(code);
	return p;
}

static void unmap(cl_mem buffer, void *p) { MUST(clEnqueueUnmapMemObject(clt_queue(), buffer, p, 0, NULL, NULL)); }

static void read_all(cl_mem buffer, void *bytes) {
	MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
}

static unsigned maps_of(cl_mem buffer) {
	cl_uint count = 99;
	MUST(clGetMemObjectInfo(buffer, CL_MEM_MAP_COUNT, sizeof count, &count, NULL));
	return count;
}

// The kinds of buffer that every case below runs for.
static const struct {
	const char *name;
	cl_mem_flags flags;
} kinds[] = {
	{"plain", CL_MEM_READ_WRITE},
	{"use", CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR},
	{"alloc", CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR},
	{"alloc|copy", CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR},
};
enum { kind_count = sizeof kinds / sizeof *kinds };

static cl_mem kind_of_buffer(size_t k) {
	bool pointer = kinds[k].flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
	cl_mem buffer = clt_buffer(kinds[k].flags, size, pointer ? host : NULL);
	clt_fill(want, size, 50 + (uint32_t)k);
	MUST(clEnqueueWriteBuffer(clt_queue(), buffer, CL_TRUE, 0, size, want, 0, NULL, NULL));
	return buffer;
}

static void same(cl_mem buffer, const char *what) {
	read_all(buffer, other);
	if (memcmp(other, want, size) != 0)
		clt_fail(__FILE__, __LINE__, "%s: content differs", what);
}

static void partial_one(cl_mem buffer, const char *name) {
	static const size_t spans[][2] = {{0, size}, {0, 1}, {1, 1}, {4095, 2}, {4097, 4000}, {size - 1, 1}};
	for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
		size_t at = spans[i][0], bytes = spans[i][1];
		unsigned char *p = map(buffer, CL_MAP_READ, at, bytes);
		CHECK(memcmp(p, want + at, bytes) == 0);
		unmap(buffer, p);
		p = map(buffer, CL_MAP_READ | CL_MAP_WRITE, at, bytes);
		CHECK(memcmp(p, want + at, bytes) == 0);
		p[bytes / 2] ^= 0x5a;
		want[at + bytes / 2] ^= 0x5a;
		unmap(buffer, p);
		same(buffer, name);
		p = map(buffer, CL_MAP_WRITE, at, bytes);
		clt_fill(p, bytes, 60 + (uint32_t)i);
		clt_fill(want + at, bytes, 60 + (uint32_t)i);
		unmap(buffer, p);
		same(buffer, name);
		p = map(buffer, CL_MAP_WRITE_INVALIDATE_REGION, at, bytes);
		clt_fill(p, bytes, 70 + (uint32_t)i);
		clt_fill(want + at, bytes, 70 + (uint32_t)i);
		unmap(buffer, p);
		same(buffer, name);
	}
}

static void partial(void) {
	for (size_t k = 0; k < kind_count; k++) {
		cl_mem buffer = kind_of_buffer(k);
		partial_one(buffer, kinds[k].name);
		clt_say(kinds[k].name, "%016llx", (unsigned long long)clt_hash(want, size));
		MUST(clReleaseMemObject(buffer));
	}
}

// A map for writing that writes nothing must leave the content as it was.
static void untouched(void) {
	for (size_t k = 0; k < kind_count; k++) {
		cl_mem buffer = kind_of_buffer(k);
		unmap(buffer, map(buffer, CL_MAP_WRITE, 100, 3000));
		unmap(buffer, map(buffer, CL_MAP_READ | CL_MAP_WRITE, 5000, 3000));
		same(buffer, kinds[k].name);
		MUST(clReleaseMemObject(buffer));
	}
}

// Two maps of overlapping regions are two views of the same memory.
static void overlapping(void) {
	for (size_t k = 0; k < kind_count; k++) {
		cl_mem buffer = kind_of_buffer(k);
		unsigned char *a = map(buffer, CL_MAP_READ, 0, 4096), *b = map(buffer, CL_MAP_READ, 2048, 4096);
		clt_say(kinds[k].name, "maps=%u", maps_of(buffer));
		CHECK(memcmp(a, want, 4096) == 0 && memcmp(b, want + 2048, 4096) == 0);
		clt_say(kinds[k].name, "one memory=%d", a + 2048 == b);
		unmap(buffer, a);
		MUST(clFinish(clt_queue())); // two unmaps at once race in PoCL's count of maps
		CHECK(memcmp(b, want + 2048, 4096) == 0);
		unmap(buffer, b);
		MUST(clFinish(clt_queue()));
		clt_say(kinds[k].name, "maps=%u", maps_of(buffer));
		same(buffer, kinds[k].name);
		MUST(clReleaseMemObject(buffer));
	}
}

// Mapping the same region three times returns the same pointer, and needs three unmaps.
static void nested(void) {
	for (size_t k = 0; k < kind_count; k++) {
		cl_mem buffer = kind_of_buffer(k);
		unsigned char *a = map(buffer, CL_MAP_READ, 64, 256), *b = map(buffer, CL_MAP_READ, 64, 256);
		unsigned char *c = map(buffer, CL_MAP_READ, 64, 512);
		clt_say(kinds[k].name, "same=%d,%d maps=%u", a == b, b == c, maps_of(buffer));
		unmap(buffer, a);
		MUST(clFinish(clt_queue()));
		unmap(buffer, b);
		MUST(clFinish(clt_queue()));
		clt_say(kinds[k].name, "maps=%u", maps_of(buffer));
		CHECK(memcmp(c, want + 64, 512) == 0);
		unmap(buffer, c);
		MUST(clFinish(clt_queue()));
		clt_say(kinds[k].name, "maps=%u", maps_of(buffer));
		clt_code(clEnqueueUnmapMemObject(clt_queue(), buffer, c, 0, NULL, NULL), "%s, once too often", kinds[k].name);
		MUST(clReleaseMemObject(buffer));
	}
}

// Disjoint maps for writing may be held at once and unmapped in any order.
static void disjoint(void) {
	for (size_t k = 0; k < kind_count; k++) {
		cl_mem buffer = kind_of_buffer(k);
		unsigned char *p[8];
		for (size_t i = 0; i < 8; i++)
			p[i] = map(buffer, CL_MAP_WRITE, i * 1000, 1000);
		for (size_t i = 0; i < 8; i++)
			clt_fill(p[i], 1000, 80 + (uint32_t)i);
		for (size_t i = 0; i < 8; i++) {
			size_t j = (i * 3 + 1) % 8;
			unmap(buffer, p[j]);
			clt_fill(want + j * 1000, 1000, 80 + (uint32_t)j);
		}
		same(buffer, kinds[k].name);
		MUST(clReleaseMemObject(buffer));
	}
}

static const char *const twice_source = "kernel void twice(global uchar *at) { size_t i = get_global_id(0); at[i] *= 2; }";

static void launch_twice(cl_mem buffer, size_t items) {
	static cl_kernel kernel;
	if (!kernel)
		kernel = clt_kernel(clt_build(twice_source, NULL), "twice");
	MUST(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

// Kernels see the writes through a map, maps see the writes of kernels.
static void kernels_between(void) {
	for (size_t k = 0; k < kind_count; k++) {
		cl_mem buffer = kind_of_buffer(k);
		for (int round = 0; round < 3; round++) {
			unsigned char *p = map(buffer, CL_MAP_WRITE, 1000, 2000);
			clt_fill(p, 2000, 90 + (uint32_t)round);
			clt_fill(want + 1000, 2000, 90 + (uint32_t)round);
			unmap(buffer, p);
			launch_twice(buffer, size);
			for (size_t i = 0; i < size; i++)
				want[i] = (unsigned char)(want[i] * 2);
			p = map(buffer, CL_MAP_READ, 900, 3000);
			CHECK(memcmp(p, want + 900, 3000) == 0);
			unmap(buffer, p);
		}
		same(buffer, kinds[k].name);
		MUST(clReleaseMemObject(buffer));
	}
}

// With CL_MEM_USE_HOST_PTR a map's pointer lies in the program's own memory, which then holds the
// latest content.
static void use_host_pointer(void) {
	clt_fill(host, size, 33);
	memcpy(want, host, size);
	cl_mem buffer = clt_buffer(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size, host);
	unsigned char *p = map(buffer, CL_MAP_READ, 123, 1000);
	CHECK(p == host + 123);
	unmap(buffer, p);
	launch_twice(buffer, size);
	p = map(buffer, CL_MAP_READ, 0, size);
	CHECK(p == host);
	for (size_t i = 0; i < size; i++)
		want[i] = (unsigned char)(want[i] * 2);
	CHECK(memcmp(host, want, size) == 0);
	unmap(buffer, p);
	p = map(buffer, CL_MAP_WRITE, 4000, 100);
	CHECK(p == host + 4000);
	memset(host + 4000, 7, 100);
	memset(want + 4000, 7, 100);
	unmap(buffer, p);
	launch_twice(buffer, size);
	for (size_t i = 0; i < size; i++)
		want[i] = (unsigned char)(want[i] * 2);
	same(buffer, "device");
	memset(host, 0xcc, 8);
	MUST(clReleaseMemObject(buffer));
	MUST(clFinish(clt_queue()));
}

// The program's memory need not be aligned in any way.
static void use_odd_pointer(void) {
	clt_fill(host, size, 34);
	memcpy(want, host, size);
	cl_mem buffer = clt_buffer(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, 1001, host + 3);
	launch_twice(buffer, 1001);
	unsigned char *p = map(buffer, CL_MAP_READ, 1, 1000);
	CHECK(p == host + 4);
	for (size_t i = 0; i < 1001; i++)
		want[i + 3] = (unsigned char)(want[i + 3] * 2);
	CHECK(memcmp(host + 4, want + 4, 1000) == 0);
	CHECK(memcmp(host, want, 3) == 0 && memcmp(host + 1004, want + 1004, size - 1004) == 0);
	unmap(buffer, p);
	MUST(clFinish(clt_queue()));
	MUST(clReleaseMemObject(buffer));
}

static void part_of_mapped(void) {
	for (size_t k = 0; k < kind_count; k++) {
		cl_mem buffer = kind_of_buffer(k);
		cl_buffer_region region = {2048, 2048};
		cl_int code;
		cl_mem part = clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
		MUST(code);
		unsigned char *p = map(part, CL_MAP_READ | CL_MAP_WRITE, 100, 1000);
		CHECK(memcmp(p, want + 2148, 1000) == 0);
		CHECK(!(kinds[k].flags & CL_MEM_USE_HOST_PTR) || p == host + 2148);
		clt_say(kinds[k].name, "maps of part=%u of parent=%u", maps_of(part), maps_of(buffer));
		memset(p, 9, 1000);
		memset(want + 2148, 9, 1000);
		unmap(part, p);
		same(buffer, kinds[k].name);
		p = map(buffer, CL_MAP_WRITE, 2048, 50);
		memset(p, 4, 50);
		memset(want + 2048, 4, 50);
		unmap(buffer, p);
		MUST(clEnqueueReadBuffer(clt_queue(), part, CL_TRUE, 0, 2048, other, 0, NULL, NULL));
		CHECK(memcmp(other, want + 2048, 2048) == 0);
		MUST(clReleaseMemObject(part));
		MUST(clReleaseMemObject(buffer));
	}
}

static void say_command(cl_event event, const char *what) {
	cl_command_type type = 0;
	MUST(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
	clt_say(what, "%#x", (unsigned)type);
}

// A non-blocking map returns the pointer at once; its content is valid when the event is complete.
static void not_blocking(void) {
	for (size_t k = 0; k < kind_count; k++) {
		cl_mem buffer = kind_of_buffer(k);
		cl_event mapped, unmapped;
		cl_int code;
		launch_twice(buffer, size);
		unsigned char *p = clEnqueueMapBuffer(clt_queue(), buffer, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 10, 5000, 0, NULL,
			&mapped, &code);
		MUST(code);
		CHECK(p != NULL);
		MUST(clWaitForEvents(1, &mapped));
		for (size_t i = 0; i < size; i++)
			want[i] = (unsigned char)(want[i] * 2);
		CHECK(memcmp(p, want + 10, 5000) == 0);
		memset(p + 1, 3, 100);
		memset(want + 11, 3, 100);
		MUST(clEnqueueUnmapMemObject(clt_queue(), buffer, p, 1, &mapped, &unmapped));
		MUST(clWaitForEvents(1, &unmapped));
		say_command(mapped, "map");
		say_command(unmapped, "unmap");
		MUST(clReleaseEvent(mapped));
		MUST(clReleaseEvent(unmapped));
		same(buffer, kinds[k].name);
		MUST(clReleaseMemObject(buffer));
	}
}

// Many maps that overlap in time with launches on an in-order queue, without a wait for any of
// them.
static void pipeline(void) {
	cl_mem buffer = kind_of_buffer(0);
	for (int round = 0; round < 200; round++) {
		cl_event mapped;
		cl_int code;
		launch_twice(buffer, 16);
		unsigned char *p = clEnqueueMapBuffer(clt_queue(), buffer, CL_FALSE, CL_MAP_WRITE_INVALIDATE_REGION, 0, 16, 0, NULL,
			&mapped, &code);
		MUST(code);
		MUST(clWaitForEvents(1, &mapped));
		memset(p, round & 0x7f, 16);
		unmap(buffer, p);
		MUST(clReleaseEvent(mapped));
		launch_twice(buffer, 16);
		MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, 0, 16, other, 0, NULL, NULL));
		CHECK(other[0] == (unsigned char)((round & 0x7f) * 2) && other[15] == other[0]);
	}
	MUST(clReleaseMemObject(buffer));
}

static void refuse(const char *what, cl_command_queue queue, cl_mem buffer, cl_map_flags how, size_t at, size_t bytes,
	cl_uint waits, const cl_event *list) {
	cl_int code = 1;
	void *p = clEnqueueMapBuffer(queue, buffer, CL_TRUE, how, at, bytes, waits, list, NULL, &code);
	clt_code(code, "%s", what);
	CHECK((p != NULL) == (code == CL_SUCCESS));
	if (p)
		unmap(buffer, p);
}

static void refused(void) {
	cl_mem buffer = kind_of_buffer(0);
	cl_event none = NULL;
	refuse("no queue", NULL, buffer, CL_MAP_READ, 0, 8, 0, NULL);
	refuse("no buffer", clt_queue(), NULL, CL_MAP_READ, 0, 8, 0, NULL);
	refuse("size 0", clt_queue(), buffer, CL_MAP_READ, 0, 0, 0, NULL);
	refuse("at the end", clt_queue(), buffer, CL_MAP_READ, size, 1, 0, NULL);
	refuse("too long", clt_queue(), buffer, CL_MAP_READ, 1, size, 0, NULL);
	refuse("no flags", clt_queue(), buffer, 0, 0, 8, 0, NULL);
	refuse("unknown flag", clt_queue(), buffer, 64, 0, 8, 0, NULL);
	refuse("read and invalidate", clt_queue(), buffer, CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, 0, 8, 0, NULL);
	refuse("count without list", clt_queue(), buffer, CL_MAP_READ, 0, 8, 1, NULL);
	refuse("list without count", clt_queue(), buffer, CL_MAP_READ, 0, 8, 0, &none);
	clt_code(clEnqueueUnmapMemObject(clt_queue(), buffer, other, 0, NULL, NULL), "unmap a foreign pointer");
	clt_code(clEnqueueUnmapMemObject(clt_queue(), buffer, NULL, 0, NULL, NULL), "unmap null");
	clt_code(clEnqueueUnmapMemObject(clt_queue(), NULL, other, 0, NULL, NULL), "unmap of nothing");
	clt_code(clEnqueueUnmapMemObject(NULL, buffer, other, 0, NULL, NULL), "unmap without queue");
	MUST(clFinish(clt_queue()));
	MUST(clReleaseMemObject(buffer));
}

// A buffer that is released while mapped stays until its last unmap.
static void released_mapped(void) {
	cl_mem buffer = kind_of_buffer(0);
	unsigned char *p = map(buffer, CL_MAP_READ | CL_MAP_WRITE, 0, size);
	CHECK(memcmp(p, want, size) == 0);
	memset(p, 1, size);
	unmap(buffer, p);
	MUST(clReleaseMemObject(buffer));
	MUST(clFinish(clt_queue()));
}

static void large(void) {
	size_t bytes = 21 * 1024 * 1024 + 5;
	cl_mem buffer = clt_buffer(CL_MEM_READ_WRITE, bytes, NULL);
	unsigned char *p = map(buffer, CL_MAP_WRITE_INVALIDATE_REGION, 0, bytes);
	clt_fill(p, bytes, 44);
	uint64_t hash = clt_hash(p, bytes);
	unmap(buffer, p);
	p = map(buffer, CL_MAP_READ, 0, bytes);
	CHECK(clt_hash(p, bytes) == hash);
	unmap(buffer, p);
	MUST(clFinish(clt_queue()));
	MUST(clReleaseMemObject(buffer));
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"partial", partial},
		{"untouched", untouched},
		{"overlapping", overlapping},
		{"nested", nested},
		{"disjoint", disjoint},
		{"kernels_between", kernels_between},
		{"use_host_pointer", use_host_pointer},
		{"use_odd_pointer", use_odd_pointer},
		{"part_of_mapped", part_of_mapped},
		{"not_blocking", not_blocking},
		{"pipeline", pipeline},
		{"refused", refused},
		{"released_mapped", released_mapped},
		{"large", large},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
