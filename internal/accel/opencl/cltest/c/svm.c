// Shared virtual memory, coarse-grained: the same addresses for host and device, contents that are
// transferred at map, unmap and copies.
#include "clt.h"

#include <pthread.h>

enum { count = 1000, size = count * sizeof(cl_int) };

static const char *source =
	"kernel void add(global int *a, int by) { a[get_global_id(0)] += by; }\n"
	"typedef struct node { int value; global struct node *next; } node;\n"
	"kernel void follow(global node *first, global int *sum) { int n = 0; for (global node *at = first; at; at = at->next) { n += at->value; at->value = -n; } *sum = n; }\n";

static bool has(void) {
	cl_device_svm_capabilities caps = 0;
	if (clt_version() < 20 || clGetDeviceInfo(clt_device(), CL_DEVICE_SVM_CAPABILITIES, sizeof caps, &caps, NULL) != CL_SUCCESS)
		return false;
	return caps & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
}

static void *allocate(size_t bytes) {
	if (!has())
		clt_skip("no shared virtual memory");
	void *p = clSVMAlloc(clt_context(), CL_MEM_READ_WRITE, bytes, 0);
	CHECK(p);
	if (!p)
		clt_end();
	return p;
}

static void release(void *p) {
	MUST(clFinish(clt_queue()));
	clSVMFree(clt_context(), p);
}

static void map(void *p, cl_map_flags flags, size_t bytes) { MUST(clEnqueueSVMMap(clt_queue(), CL_TRUE, flags, p, bytes, 0, NULL, NULL)); }
static void unmap(void *p) { MUST(clEnqueueSVMUnmap(clt_queue(), p, 0, NULL, NULL)); }

static cl_kernel kernel_of(const char *name) {
	static cl_program program;
	if (!program)
		program = clt_build(source, "");
	return clt_kernel(program, name);
}

static void capabilities(void) { clt_say("coarse", "%d", has()); }

static void number(cl_int *a) {
	map(a, CL_MAP_WRITE_INVALIDATE_REGION, size);
	for (int i = 0; i < count; i++)
		a[i] = i;
	unmap(a);
}

static void add(cl_kernel kernel, cl_int *at, size_t items, cl_int by) {
	MUST(clSetKernelArgSVMPointer(kernel, 0, at));
	MUST(clSetKernelArg(kernel, 1, sizeof by, &by));
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

// A kernel that gets a pointer into the middle of an allocation.
static void kernels(void) {
	cl_int *a = allocate(size);
	cl_kernel kernel = kernel_of("add");
	number(a);
	add(kernel, a, count, 5);
	add(kernel, a + 100, 10, 1000);
	add(kernel, a + 100, 10, 1000); // only the memory has changed
	map(a, CL_MAP_READ | CL_MAP_WRITE, size);
	for (int i = 0; i < count; i++)
		CHECK(a[i] == i + 5 + (i >= 100 && i < 110 ? 2000 : 0));
	a[7] = 70;
	unmap(a);
	add(kernel, a, count, 1);
	map(a, CL_MAP_READ, size);
	CHECK(a[7] == 71 && a[6] == 12 && a[105] == 105 + 5 + 2000 + 1);
	clt_say("hash", "%016llx", (unsigned long long)clt_hash(a, size));
	unmap(a);
	MUST(clReleaseKernel(kernel));
	release(a);
}

struct node {
	cl_int value;
	struct node *next;
};

// A list through three allocations: the device follows the host's pointers.
static void pointers(void) {
	struct node *parts[3], *last = NULL;
	cl_int *sum = allocate(sizeof *sum), want = 0;
	cl_kernel kernel = kernel_of("follow");
	for (int i = 0; i < 3; i++)
		map(parts[i] = allocate(20 * sizeof **parts), CL_MAP_WRITE, 20 * sizeof **parts);
	for (int i = 0; i < 60; i++) {
		struct node *n = &parts[i % 3][i / 3];
		*n = (struct node){i + 1, last};
		last = n;
		want += i + 1;
	}
	for (int i = 0; i < 3; i++)
		unmap(parts[i]);
	MUST(clSetKernelArgSVMPointer(kernel, 0, last));
	MUST(clSetKernelArgSVMPointer(kernel, 1, sum));
	MUST(clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof parts, parts));
	size_t one = 1;
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
	map(sum, CL_MAP_READ, sizeof *sum);
	clt_say("sum", "%d", *sum);
	CHECK(*sum == want);
	unmap(sum);
	clt_code(clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, 0, NULL), "an empty list");
	map(parts[0], CL_MAP_READ, 20 * sizeof **parts);
	CHECK(parts[0][0].value == -want && parts[0][1].next == &parts[2][0]);
	unmap(parts[0]);
	MUST(clReleaseKernel(kernel));
	for (int i = 0; i < 3; i++)
		release(parts[i]);
	release(sum);
}

// Copies in every direction, blocking or not, between offsets in the middle of allocations.
static void copies(void) {
	static unsigned char from[size], to[size], other[size];
	unsigned char *a = allocate(size), *b = allocate(size);
	for (cl_bool blocking = CL_FALSE; blocking <= CL_TRUE; blocking++) {
		clt_fill(from, size, 10 + blocking);
		memset(to, 0, size);
		MUST(clEnqueueSVMMemcpy(clt_queue(), blocking, a, from, size, 0, NULL, NULL));
		MUST(clEnqueueSVMMemcpy(clt_queue(), blocking, b + 100, a + 3, size - 100, 0, NULL, NULL));
		MUST(clEnqueueSVMMemcpy(clt_queue(), blocking, b, a + 50, 100, 0, NULL, NULL));
		MUST(clEnqueueSVMMemcpy(clt_queue(), blocking, to, b, size, 0, NULL, NULL));
		MUST(clEnqueueSVMMemcpy(clt_queue(), blocking, other, to, size, 0, NULL, NULL)); // the program's memory alone
		MUST(clFinish(clt_queue()));
		CHECK(memcmp(to, from + 50, 100) == 0 && memcmp(to + 100, from + 3, size - 100) == 0 && memcmp(other, to, size) == 0);
		clt_say("hash", "%016llx", (unsigned long long)clt_hash(to, size));
	}
	release(a);
	release(b);
}

static void fills(void) {
	static const cl_int pattern[4] = {1, -2, 3, -4};
	cl_int *a = allocate(size);
	cl_event event;
	cl_command_type type = 0;
	number(a);
	MUST(clEnqueueSVMMemFill(clt_queue(), a + 4, pattern, sizeof pattern, 10 * sizeof pattern, 0, NULL, NULL));
	MUST(clEnqueueSVMMemFill(clt_queue(), a + 101, pattern, sizeof *pattern, 3 * sizeof *pattern, 0, NULL, &event));
	MUST(clWaitForEvents(1, &event));
	MUST(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
	CHECK(type == CL_COMMAND_SVM_MEMFILL);
	MUST(clReleaseEvent(event));
	map(a, CL_MAP_READ, size);
	CHECK(a[3] == 3 && a[4] == 1 && a[43] == -4 && a[44] == 44 && a[100] == 100 && a[101] == 1 && a[103] == 1 && a[104] == 104);
	clt_say("hash", "%016llx", (unsigned long long)clt_hash(a, size));
	unmap(a);
	release(a);
}

static struct {
	unsigned calls, pointers;
	void *user;
	cl_int order;
} freed;

static void CL_CALLBACK free_them(cl_command_queue queue, cl_uint n, void **list, void *user) {
	cl_context context;
	clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
	for (cl_uint i = 0; i < n; i++)
		clSVMFree(context, list[i]);
	freed.calls++;
	freed.pointers += n;
	freed.user = user;
}

// The callback has returned when the command is complete.
static void free_in_order(void) {
	cl_event gate = NULL, event;
	cl_int code;
	cl_command_queue queue = clt_new_queue(clt_context(), 0);
	void *list[3] = {allocate(10), allocate(20000), allocate(30)};
	MUST(clEnqueueSVMMemFill(queue, list[1], "x", 1, 20000, 0, NULL, NULL));
	gate = clCreateUserEvent(clt_context(), &code);
	MUST(code);
	MUST(clEnqueueSVMFree(queue, 2, list, free_them, &freed, 1, &gate, &event));
	MUST(clFlush(queue));
	CHECK(freed.calls == 0);
	MUST(clSetUserEventStatus(gate, CL_COMPLETE));
	MUST(clWaitForEvents(1, &event));
	clt_say("calls", "%u of %u pointers", freed.calls, freed.pointers);
	CHECK(freed.calls == 1 && freed.pointers == 2 && freed.user == &freed);
	MUST(clEnqueueSVMFree(queue, 1, list + 2, NULL, NULL, 0, NULL, NULL));
	MUST(clFinish(queue));
	MUST(clReleaseEvent(gate));
	MUST(clReleaseEvent(event));
	MUST(clReleaseCommandQueue(queue));
}

// A buffer whose storage is shared memory.
static void buffers(void) {
	cl_int *a = allocate(size), code, value = 0;
	number(a);
	cl_mem buffer = clCreateBuffer(clt_context(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size, a, &code);
	MUST(code);
	cl_bool uses = CL_FALSE;
	void *host = NULL;
	cl_mem parent = buffer;
	size_t offset = 1, bytes = 0;
	MUST(clGetMemObjectInfo(buffer, CL_MEM_USES_SVM_POINTER, sizeof uses, &uses, NULL));
	MUST(clGetMemObjectInfo(buffer, CL_MEM_HOST_PTR, sizeof host, &host, NULL));
	MUST(clGetMemObjectInfo(buffer, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL));
	MUST(clGetMemObjectInfo(buffer, CL_MEM_OFFSET, sizeof offset, &offset, NULL));
	MUST(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL));
	clt_say("buffer", "uses=%u parent=%d offset=%zu size=%zu", uses, parent != NULL, offset, bytes);
	CHECK(host == a && uses && !parent && offset == 0 && bytes == size);
	cl_kernel kernel = kernel_of("add");
	add(kernel, a, count, 1);
	MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, 40, sizeof value, &value, 0, NULL, NULL));
	CHECK(value == 11);
	cl_int by = 100;
	size_t items = count;
	MUST(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
	MUST(clSetKernelArg(kernel, 1, sizeof by, &by));
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
	map(a, CL_MAP_READ | CL_MAP_WRITE, size);
	CHECK(a[10] == 111);
	a[11] = 7;
	unmap(a);
	cl_int *p = clEnqueueMapBuffer(clt_queue(), buffer, CL_TRUE, CL_MAP_READ, 40, 8, 0, NULL, NULL, &code);
	MUST(code);
	CHECK(p == a + 10 && p[0] == 111 && p[1] == 7);
	MUST(clEnqueueUnmapMemObject(clt_queue(), buffer, p, 0, NULL, NULL));
	add(kernel, a, count, 1); // a kernel whose arguments do not include the buffer
	p = clEnqueueMapBuffer(clt_queue(), buffer, CL_TRUE, CL_MAP_READ, 0, size, 0, NULL, NULL, &code);
	MUST(code);
	CHECK(p[10] == 112 && p[11] == 8);
	MUST(clEnqueueUnmapMemObject(clt_queue(), buffer, p, 0, NULL, NULL));
	MUST(clFinish(clt_queue()));
	MUST(clReleaseMemObject(buffer));
	MUST(clReleaseKernel(kernel));
	release(a);
}

// Many allocations of all sizes do not overlap.
static void many(void) {
	enum { blocks = 300 };
	static unsigned char *all[blocks];
	uint32_t state = 5;
	size_t sizes[blocks];
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < blocks; i++) {
			sizes[i] = 1 + clt_random(&state) % (i % 10 ? 300 : 70000);
			all[i] = allocate(sizes[i]);
			unsigned char byte = (unsigned char)i;
			MUST(clEnqueueSVMMemFill(clt_queue(), all[i], &byte, 1, sizes[i], 0, NULL, NULL));
		}
		for (int i = 0; i < blocks; i++) {
			map(all[i], CL_MAP_READ, sizes[i]);
			for (size_t k = 0; k < sizes[i]; k++)
				if (all[i][k] != (unsigned char)i) {
					clt_fail(__FILE__, __LINE__, "byte %zu of block %d is %d", k, i, all[i][k]);
					break;
				}
			unmap(all[i]);
		}
		MUST(clFinish(clt_queue()));
		for (int i = 0; i < blocks; i++)
			clSVMFree(clt_context(), all[(i * 7) % blocks]);
	}
}

// Larger than the capacity of a ring, and aligned as requested.
static void large(void) {
	size_t bytes = 20 << 20;
	allocate(1);
	unsigned char *p = clSVMAlloc(clt_context(), CL_MEM_READ_WRITE, bytes, 64);
	CHECK(p && (uintptr_t)p % 64 == 0);
	map(p, CL_MAP_WRITE_INVALIDATE_REGION, bytes);
	clt_fill(p, bytes, 3);
	uint64_t hash = clt_hash(p, bytes);
	unmap(p);
	MUST(clFinish(clt_queue()));
	map(p, CL_MAP_READ, bytes);
	CHECK(clt_hash(p, bytes) == hash);
	unmap(p);
	release(p);
}

static void *works(void *failed) {
	cl_command_queue queue = clt_new_queue(clt_context(), 0);
	for (int i = 0; i < 50; i++) {
		cl_int *p = clSVMAlloc(clt_context(), CL_MEM_READ_WRITE, size, 0), value = i, got = -1;
		if (!p || clEnqueueSVMMemFill(queue, p, &value, sizeof value, size, 0, NULL, NULL) != CL_SUCCESS
			|| clEnqueueSVMMemcpy(queue, CL_TRUE, &got, p + 17, sizeof got, 0, NULL, NULL) != CL_SUCCESS || got != i)
			*(bool *)failed = true;
		clSVMFree(clt_context(), p);
	}
	clReleaseCommandQueue(queue);
	return NULL;
}

static void threads(void) {
	pthread_t all[4];
	bool failed[4] = {false};
	allocate(1);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&all[i], NULL, works, &failed[i]) == 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(all[i], NULL);
		CHECK(!failed[i]);
	}
}

static void refused(void) {
	static cl_int host[4];
	cl_int *a = allocate(size), one = 1;
	cl_kernel kernel = kernel_of("add");
	clSVMFree(clt_context(), NULL);
	CHECK(!clSVMAlloc(clt_context(), CL_MEM_READ_WRITE, 0, 0));
	CHECK(!clSVMAlloc(clt_context(), CL_MEM_READ_WRITE, SIZE_MAX / 2, 0));
	CHECK(!clSVMAlloc(clt_context(), CL_MEM_READ_WRITE, 64, 3));
	clt_code(clEnqueueSVMMap(clt_queue(), CL_TRUE, CL_MAP_READ, NULL, 4, 0, NULL, NULL), "map of NULL");
	clt_code(clEnqueueSVMMap(clt_queue(), CL_TRUE, CL_MAP_READ, a, 0, 0, NULL, NULL), "map of nothing");
	clt_code(clEnqueueSVMMemcpy(clt_queue(), CL_TRUE, NULL, a, 4, 0, NULL, NULL), "copy to NULL");
	clt_code(clEnqueueSVMMemcpy(clt_queue(), CL_TRUE, a, a + 1, 8, 0, NULL, NULL), "overlapping copy");
	clt_code(clEnqueueSVMMemFill(clt_queue(), a, &one, 3, 9, 0, NULL, NULL), "pattern of 3");
	clt_code(clEnqueueSVMMemFill(clt_queue(), NULL, &one, 4, 8, 0, NULL, NULL), "fill of NULL");
	clt_code(clSetKernelArgSVMPointer(kernel, 99, a), "argument 99");
	if (getenv("OUTBOARD_SOCKET")) { // PoCL accepts these
		CHECK(clEnqueueSVMMap(clt_queue(), CL_TRUE, CL_MAP_READ, host, 4, 0, NULL, NULL) == CL_INVALID_VALUE);
		CHECK(clEnqueueSVMMap(clt_queue(), CL_TRUE, CL_MAP_READ, a, size + 1, 0, NULL, NULL) == CL_INVALID_VALUE);
		CHECK(clEnqueueSVMUnmap(clt_queue(), a, 0, NULL, NULL) == CL_INVALID_VALUE);
		CHECK(clEnqueueSVMMemcpy(clt_queue(), CL_TRUE, host, a + count - 1, 8, 0, NULL, NULL) == CL_INVALID_VALUE);
		CHECK(clSetKernelArgSVMPointer(kernel, 0, host) == CL_INVALID_ARG_VALUE);
		CHECK(clSetKernelArgSVMPointer(kernel, 1, a) == CL_INVALID_ARG_VALUE);
		CHECK(!clSVMAlloc(clt_context(), CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER, 64, 0));
		CHECK(clSetKernelExecInfo(kernel, 0xffff, sizeof a, &a) == CL_INVALID_VALUE);
		cl_bool yes = CL_TRUE;
		CHECK(clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, sizeof yes, &yes) == CL_INVALID_OPERATION);
	}
	MUST(clReleaseKernel(kernel));
	release(a);
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"capabilities", capabilities},
		{"kernels", kernels},
		{"pointers", pointers},
		{"copies", copies},
		{"fills", fills},
		{"free_in_order", free_in_order},
		{"buffers", buffers},
		{"many", many},
		{"large", large},
		{"threads", threads},
		{"refused", refused},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
