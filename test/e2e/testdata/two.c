// Two devices of different nodes in one program: in one context, whose objects both use, and in one context each.
#include "clt.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SIZE = 1 << 18, WIDTH = 64, HEIGHT = 32 };

static cl_device_id device[2];
static cl_context context;
static cl_command_queue queue[2];
static cl_program program;

static const char source[] =
	"kernel void add(global uchar *a, uint k) { a[get_global_id(0)] += (uchar)k; }\n"
	"kernel void sum(global const uint *a, global const uint *b, global uint *c) { size_t i = get_global_id(0); c[i] = a[i] + b[i]; }\n"
	"kernel void shift(read_only image2d_t a, write_only image2d_t b) {\n"
	"	int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
	"	write_imageui(b, at, (read_imageui(a, at) + 1) & 255);\n"
	"}\n";

static cl_command_queue new_queue(int which, cl_command_queue_properties properties) {
	cl_int code;
	cl_command_queue made = clCreateCommandQueue(context, device[which], properties, &code);
	MUST(code);
	return made;
}

static cl_mem new_buffer(cl_mem_flags flags, size_t size, void *host) {
	cl_int code;
	cl_mem made = clCreateBuffer(context, flags, size, host, &code);
	MUST(code);
	return made;
}

static cl_program new_program(cl_context in) {
	const char *text = source;
	cl_int code;
	cl_program made = clCreateProgramWithSource(in, 1, &text, NULL, &code);
	MUST(code);
	MUST(clBuildProgram(made, 0, NULL, "", NULL, NULL));
	return made;
}

// both opens one context on both devices; all cases but the last ones share it.
static void both(void) {
	if (context)
		return;
	cl_uint count = 0;
	MUST(clGetDeviceIDs(clt_platform(), CL_DEVICE_TYPE_ALL, 2, device, &count));
	clt_say("devices", "%u", count);
	CHECK(count == 2 && device[0] != device[1]);
	if (count < 2)
		clt_end();
	cl_int code;
	context = clCreateContext(NULL, 2, device, NULL, NULL, &code);
	MUST(code);
	for (int i = 0; i < 2; i++)
		queue[i] = new_queue(i, 0);
	program = new_program(context);
}

static void launch(cl_command_queue on, cl_kernel kernel, size_t items, cl_uint waits, const cl_event *list, cl_event *event) {
	MUST(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &items, NULL, waits, list, event));
	MUST(clFlush(on)); // as the specification demands before another queue waits for the event
}

static void check_bytes(const char *what, const unsigned char *got, const unsigned char *want, size_t size) {
	for (size_t i = 0; i < size; i++)
		if (got[i] != want[i]) {
			clt_fail(__FILE__, __LINE__, "%s: byte %zu is %d, want %d", what, i, got[i], want[i]);
			return;
		}
}

static void read_and_check(const char *what, int which, cl_mem from, const unsigned char *want, size_t size, cl_event after) {
	unsigned char *got = malloc(size);
	MUST(clEnqueueReadBuffer(queue[which], from, CL_TRUE, 0, size, got, after != NULL, after ? &after : NULL, NULL));
	check_bytes(what, got, want, size);
	free(got);
}

static void facts(void) {
	both();
	cl_uint count = 0;
	cl_device_id have[2], of[2];
	MUST(clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, NULL));
	CHECK(count == 2);
	MUST(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof have, have, NULL));
	CHECK(!memcmp(have, device, sizeof have));
	MUST(clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof of, of, NULL));
	CHECK(!memcmp(of, device, sizeof of));
	for (int i = 0; i < 2; i++) {
		cl_device_id its;
		cl_build_status built;
		MUST(clGetCommandQueueInfo(queue[i], CL_QUEUE_DEVICE, sizeof its, &its, NULL));
		CHECK(its == device[i]);
		MUST(clGetProgramBuildInfo(program, device[i], CL_PROGRAM_BUILD_STATUS, sizeof built, &built, NULL));
		CHECK(built == CL_BUILD_SUCCESS);
	}
}

// Written on one, read through the other, without any event: a blocking call orders.
static void written_and_read(void) {
	both();
	static unsigned char host[SIZE];
	for (int i = 0; i < 8; i++) {
		cl_mem buffer = new_buffer(CL_MEM_READ_WRITE, SIZE, NULL);
		clt_fill(host, SIZE, (uint32_t)i);
		MUST(clEnqueueWriteBuffer(queue[i % 2], buffer, CL_TRUE, 0, SIZE, host, 0, NULL, NULL));
		read_and_check("other's", 1 - i % 2, buffer, host, SIZE, NULL);
		// A part, on top of what the other one has.
		clt_fill(host + 1000, 5000, 77);
		MUST(clEnqueueWriteBuffer(queue[1 - i % 2], buffer, CL_TRUE, 1000, 5000, host + 1000, 0, NULL, NULL));
		read_and_check("part", i % 2, buffer, host, SIZE, NULL);
		MUST(clReleaseMemObject(buffer));
	}
}

// Kernels on both in turn on one buffer and on a part of it; each waits for the other's event.
static void kernels_in_turn(void) {
	both();
	static unsigned char want[SIZE];
	clt_fill(want, SIZE, 1);
	cl_mem whole = new_buffer(CL_MEM_COPY_HOST_PTR, SIZE, want);
	cl_buffer_region region = {4096, 8192};
	cl_int code;
	cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
	MUST(code);
	cl_kernel add = clt_kernel(program, "add");
	cl_event before = NULL;
	for (cl_uint i = 0; i < 40; i++) {
		bool all = i % 3;
		size_t first = all ? 0 : region.origin, items = all ? SIZE : region.size;
		cl_event done;
		MUST(clSetKernelArg(add, 0, sizeof whole, all ? &whole : &part));
		MUST(clSetKernelArg(add, 1, sizeof i, &i));
		launch(queue[i % 2], add, items, before != NULL, before ? &before : NULL, &done);
		if (before)
			MUST(clReleaseEvent(before));
		before = done;
		for (size_t j = 0; j < items; j++)
			want[first + j] += (unsigned char)i;
		if (i % 7 == 0)
			read_and_check("read", (i / 7) % 2, whole, want, SIZE, before);
		if (i % 5 == 0) {
			cl_command_queue on = queue[(i / 5) % 2];
			unsigned char *at = clEnqueueMapBuffer(on, whole, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 77, 1000, 1, &before, NULL, &code);
			MUST(code);
			check_bytes("map", at, want + 77, 1000);
			at[5] = want[82] = (unsigned char)i;
			MUST(clEnqueueUnmapMemObject(on, whole, at, 0, NULL, NULL));
			MUST(clFinish(on));
		}
	}
	read_and_check("end", 0, whole, want, SIZE, before);
	read_and_check("part's end", 1, part, want + region.origin, region.size, before);
	clReleaseEvent(before);
	clReleaseMemObject(part);
	clReleaseMemObject(whole);
	clReleaseKernel(add);
}

// A diamond: both make something from one source, and one puts the results together.
static void diamond(void) {
	both();
	enum { items = 4096 };
	static cl_uint host[items], got[items];
	clt_fill(host, sizeof host, 5);
	cl_mem from = new_buffer(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof host, host);
	cl_mem made[2] = {new_buffer(0, sizeof host, NULL), new_buffer(0, sizeof host, NULL)};
	cl_kernel sum = clt_kernel(program, "sum");
	for (int round = 0; round < 10; round++) {
		cl_event done[3];
		for (int i = 0; i < 2; i++) {
			MUST(clSetKernelArg(sum, 0, sizeof from, &from));
			MUST(clSetKernelArg(sum, 1, sizeof from, &from));
			MUST(clSetKernelArg(sum, 2, sizeof made[i], &made[i]));
			launch(queue[i], sum, items, 0, NULL, &done[i]);
		}
		MUST(clSetKernelArg(sum, 0, sizeof made[0], &made[0]));
		MUST(clSetKernelArg(sum, 1, sizeof made[1], &made[1]));
		MUST(clSetKernelArg(sum, 2, sizeof made[0], &made[round % 2]));
		launch(queue[round / 2 % 2], sum, items, 2, done, &done[2]);
		MUST(clEnqueueReadBuffer(queue[round % 2], made[round % 2], CL_TRUE, 0, sizeof got, got, 1, &done[2], NULL));
		for (int i = 0; i < items; i++)
			if (got[i] != 4 * host[i]) {
				clt_fail(__FILE__, __LINE__, "round %d: %u at %d, want %u", round, got[i], i, 4 * host[i]);
				break;
			}
		for (int i = 0; i < 3; i++)
			clReleaseEvent(done[i]);
	}
	clReleaseMemObject(from);
	clReleaseMemObject(made[0]);
	clReleaseMemObject(made[1]);
	clReleaseKernel(sum);
}

// Copies, fills and rectangles through both, of buffers that are current on the other only.
static void copies(void) {
	both();
	enum { row = 256, rows = 64, size = row * rows };
	static unsigned char a[size], b[size];
	clt_fill(a, size, 11);
	memset(b, 0, size);
	cl_mem from = new_buffer(0, size, NULL), to = new_buffer(0, size, NULL);
	cl_event done[4];
	MUST(clEnqueueWriteBuffer(queue[0], from, CL_FALSE, 0, size, a, 0, NULL, &done[0]));
	cl_uchar zero = 0, seven = 7;
	MUST(clEnqueueFillBuffer(queue[1], to, &zero, 1, 0, size, 0, NULL, &done[1]));
	MUST(clFlush(queue[0]));
	MUST(clEnqueueCopyBuffer(queue[1], from, to, 100, 300, 5000, 2, done, &done[2]));
	MUST(clFlush(queue[1]));
	memcpy(b + 300, a + 100, 5000);
	size_t origin[3] = {16, 8, 0}, into[3] = {32, 32, 0}, region[3] = {64, 16, 1};
	MUST(clEnqueueCopyBufferRect(queue[0], from, to, origin, into, region, row, 0, row, 0, 1, &done[2], &done[3]));
	MUST(clFlush(queue[0]));
	for (int y = 0; y < 16; y++)
		memcpy(b + (32 + y) * row + 32, a + (8 + y) * row + 16, 64);
	read_and_check("copied", 1, to, b, size, done[3]);
	MUST(clEnqueueFillBuffer(queue[1], to, &seven, 1, 512, 512, 0, NULL, NULL));
	memset(b + 512, 7, 512);
	MUST(clFinish(queue[1]));
	read_and_check("filled", 0, to, b, size, NULL);
	static unsigned char rect[64 * 16], want[64 * 16];
	size_t host_origin[3] = {0, 0, 0};
	MUST(clEnqueueReadBufferRect(queue[1], to, CL_TRUE, into, host_origin, region, row, 0, 64, 0, rect, 0, NULL, NULL));
	for (int y = 0; y < 16; y++)
		memcpy(want + y * 64, b + (32 + y) * row + 32, 64);
	check_bytes("rectangle", rect, want, sizeof rect);
	for (int i = 0; i < 4; i++)
		clReleaseEvent(done[i]);
	clReleaseMemObject(from);
	clReleaseMemObject(to);
}

// A map on one shows what the other wrote; what it writes the other sees after the unmap.
static void maps(void) {
	both();
	static unsigned char want[SIZE], own[SIZE];
	cl_int code;
	cl_event done;
	for (int kind = 0; kind < 3; kind++) {
		cl_mem_flags flags[] = {CL_MEM_READ_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_USE_HOST_PTR};
		clt_fill(own, SIZE, 3), clt_fill(want, SIZE, 3);
		cl_mem buffer = new_buffer(flags[kind], SIZE, kind == 2 ? own : NULL);
		if (kind != 2)
			MUST(clEnqueueWriteBuffer(queue[0], buffer, CL_TRUE, 0, SIZE, want, 0, NULL, NULL));
		for (int i = 0; i < 4; i++) {
			cl_command_queue here = queue[i % 2], there = queue[1 - i % 2];
			cl_kernel add = clt_kernel(program, "add");
			cl_uint k = 5;
			MUST(clSetKernelArg(add, 0, sizeof buffer, &buffer));
			MUST(clSetKernelArg(add, 1, sizeof k, &k));
			launch(there, add, SIZE, 0, NULL, &done);
			for (int j = 0; j < SIZE; j++)
				want[j] += 5;
			unsigned char *at = clEnqueueMapBuffer(here, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, SIZE, 1, &done, NULL, &code);
			MUST(code);
			CHECK(kind != 2 || at == own);
			check_bytes("mapped", at, want, SIZE);
			memset(at + 100 * i, i, 50), memset(want + 100 * i, i, 50);
			clReleaseEvent(done);
			MUST(clEnqueueUnmapMemObject(here, buffer, at, 0, NULL, &done));
			MUST(clFlush(here));
			read_and_check("after unmap", 1 - i % 2, buffer, want, SIZE, done);
			at = clEnqueueMapBuffer(there, buffer, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 7, 100, 0, NULL, NULL, &code);
			MUST(code);
			memset(at, 40 + i, 100), memset(want + 7, 40 + i, 100);
			clReleaseEvent(done);
			MUST(clEnqueueUnmapMemObject(there, buffer, at, 0, NULL, &done));
			MUST(clFlush(there));
			read_and_check("after the second", i % 2, buffer, want, SIZE, done);
			clReleaseEvent(done);
			clReleaseKernel(add);
		}
		clReleaseMemObject(buffer);
	}
}

static void images(void) {
	both();
	static unsigned char host[WIDTH * HEIGHT * 4], want[sizeof host], got[sizeof host];
	clt_fill(host, sizeof host, 9);
	cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
	cl_image_desc shape = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT};
	cl_int code;
	cl_mem image[2];
	for (int i = 0; i < 2; i++) {
		image[i] = clCreateImage(context, i ? 0 : CL_MEM_COPY_HOST_PTR, &format, &shape, i ? NULL : host, &code);
		MUST(code);
	}
	cl_kernel shift = clt_kernel(program, "shift");
	size_t global[3] = {WIDTH, HEIGHT, 1}, origin[3] = {0};
	cl_event before = NULL;
	for (int i = 0; i < 6; i++) {
		cl_event done;
		MUST(clSetKernelArg(shift, 0, sizeof(cl_mem), &image[i % 2]));
		MUST(clSetKernelArg(shift, 1, sizeof(cl_mem), &image[1 - i % 2]));
		MUST(clEnqueueNDRangeKernel(queue[i / 2 % 2], shift, 2, NULL, global, NULL, before != NULL, before ? &before : NULL, &done));
		MUST(clFlush(queue[i / 2 % 2]));
		if (before)
			clReleaseEvent(before);
		before = done;
	}
	for (size_t i = 0; i < sizeof host; i++)
		want[i] = (unsigned char)(host[i] + 6);
	MUST(clEnqueueReadImage(queue[0], image[0], CL_TRUE, origin, global, 0, 0, got, 1, &before, NULL));
	check_bytes("image", got, want, sizeof got);
	cl_mem buffer = new_buffer(0, sizeof host, NULL);
	clReleaseEvent(before);
	MUST(clEnqueueCopyImageToBuffer(queue[1], image[0], buffer, origin, global, 0, 0, NULL, &before));
	MUST(clFlush(queue[1]));
	read_and_check("image in a buffer", 0, buffer, want, sizeof want, before);
	size_t pitch;
	unsigned char *at = clEnqueueMapImage(queue[1], image[0], CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, origin, global, &pitch, NULL, 0, NULL, NULL, &code);
	MUST(code);
	for (int y = 0; y < HEIGHT; y++) {
		check_bytes("mapped image", at + (size_t)y * pitch, want + y * WIDTH * 4, WIDTH * 4);
		at[(size_t)y * pitch] = want[y * WIDTH * 4] = (unsigned char)y;
	}
	clReleaseEvent(before);
	MUST(clEnqueueUnmapMemObject(queue[1], image[0], at, 0, NULL, &before));
	MUST(clFlush(queue[1]));
	MUST(clEnqueueReadImage(queue[0], image[0], CL_TRUE, origin, global, 0, 0, got, 1, &before, NULL));
	check_bytes("image after unmap", got, want, sizeof got);
	clReleaseEvent(before);
	clReleaseMemObject(buffer);
	clReleaseMemObject(image[0]);
	clReleaseMemObject(image[1]);
	clReleaseKernel(shift);
}

// A user event holds back commands of both; what waits for it through the other's event too. Each has a buffer of its own:
// moving what a held-back command will have written waits for it.
static void user_events(void) {
	both();
	static unsigned char host[4096];
	for (int fails = 0; fails < 2; fails++) {
		memset(host, 0, sizeof host);
		cl_mem buffer[2] = {new_buffer(0, sizeof host, NULL), new_buffer(0, sizeof host, NULL)};
		cl_kernel add = clt_kernel(program, "add");
		cl_uint k = 3;
		cl_int code, status;
		MUST(clSetKernelArg(add, 1, sizeof k, &k));
		for (int i = 0; i < 2; i++)
			MUST(clEnqueueWriteBuffer(queue[i], buffer[i], CL_TRUE, 0, sizeof host, host, 0, NULL, NULL));
		cl_event gate = clCreateUserEvent(context, &code), done[4];
		MUST(code);
		for (int i = 0; i < 4; i++) {
			MUST(clSetKernelArg(add, 0, sizeof(cl_mem), &buffer[i % 2]));
			launch(queue[i % 2], add, sizeof host, 1, i ? &done[i - 1] : &gate, &done[i]);
		}
		for (int i = 0; i < 4; i++) {
			MUST(clGetEventInfo(done[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
			CHECK(status > CL_COMPLETE);
		}
		MUST(clSetUserEventStatus(gate, fails ? -77 : CL_COMPLETE));
		clt_code(clWaitForEvents(1, &done[3]), "wait, gate %s", fails ? "fails" : "opens");
		for (int i = 0; i < 4; i++) {
			if (fails) // the last may fail with the one before it in its queue, sooner than with the one that it waits for
				CHECK(clWaitForEvents(1, &done[i]) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
			MUST(clGetEventInfo(done[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
			CHECK(fails ? status < 0 : status == CL_COMPLETE);
			clReleaseEvent(done[i]);
		}
		clFinish(queue[0]);
		clFinish(queue[1]);
		memset(host, fails ? 0 : 6, sizeof host);
		for (int i = 0; i < 2; i++) {
			read_and_check("held back", 1 - i, buffer[i], host, sizeof host, NULL);
			clReleaseMemObject(buffer[i]);
		}
		clReleaseEvent(gate);
		clReleaseKernel(add);
	}
}

// An out-of-order queue on each: hundreds of launches ordered by events alone, and barriers across.
static void out_of_order(void) {
	both();
	enum { size = 4096, count = 200 };
	static unsigned char host[size];
	memset(host, 0, size);
	cl_command_queue on[2] = {new_queue(0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE), new_queue(1, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)};
	cl_mem buffer = new_buffer(CL_MEM_COPY_HOST_PTR, size, host);
	cl_kernel add = clt_kernel(program, "add");
	MUST(clSetKernelArg(add, 0, sizeof buffer, &buffer));
	cl_event before = NULL;
	unsigned char total = 0;
	for (cl_uint i = 0; i < count; i++) {
		cl_event done;
		int which = i / 10 % 2;
		MUST(clSetKernelArg(add, 1, sizeof i, &i));
		launch(on[which], add, size, before != NULL, before ? &before : NULL, &done);
		if (before)
			clReleaseEvent(before);
		before = done;
		if (i % 10 == 9) {
			cl_event marker;
			MUST(clEnqueueMarkerWithWaitList(on[which], 1, &before, &marker));
			MUST(clFlush(on[which]));
			clReleaseEvent(before);
			before = marker;
		}
		total += (unsigned char)i;
	}
	MUST(clEnqueueBarrierWithWaitList(on[0], 1, &before, NULL));
	memset(host, total, size);
	unsigned char got[size];
	MUST(clEnqueueReadBuffer(on[0], buffer, CL_TRUE, 0, size, got, 0, NULL, NULL));
	check_bytes("in order", got, host, size);
	clReleaseEvent(before);
	clReleaseMemObject(buffer);
	clReleaseKernel(add);
	clReleaseCommandQueue(on[0]);
	clReleaseCommandQueue(on[1]);
}

// What one run compiled both devices take as binaries.
static void binaries(void) {
	both();
	size_t sizes[2];
	unsigned char *code_of[2];
	cl_int code, each[2];
	MUST(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL));
	for (int i = 0; i < 2; i++) {
		CHECK(sizes[i] > 0);
		code_of[i] = malloc(sizes[i] + 1);
	}
	MUST(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof code_of, code_of, NULL));
	cl_program again = clCreateProgramWithBinary(context, 2, device, sizes, (const unsigned char **)code_of, each, &code);
	MUST(code);
	CHECK(each[0] == CL_SUCCESS && each[1] == CL_SUCCESS);
	MUST(clBuildProgram(again, 0, NULL, "", NULL, NULL));
	cl_kernel add = clt_kernel(again, "add");
	unsigned char host[1024] = {0};
	cl_mem buffer = new_buffer(CL_MEM_COPY_HOST_PTR, sizeof host, host);
	cl_uint k = 21;
	MUST(clSetKernelArg(add, 0, sizeof buffer, &buffer));
	MUST(clSetKernelArg(add, 1, sizeof k, &k));
	for (int i = 0; i < 2; i++) {
		launch(queue[i], add, sizeof host, 0, NULL, NULL);
		MUST(clFinish(queue[i]));
	}
	memset(host, 42, sizeof host);
	read_and_check("binary", 0, buffer, host, sizeof host, NULL);
	for (int i = 0; i < 2; i++)
		free(code_of[i]);
	clReleaseMemObject(buffer);
	clReleaseKernel(add);
	clReleaseProgram(again);
}

// A program that is built for the second device alone runs there and nowhere else.
static void built_for_one(void) {
	both();
	const char *text = source;
	cl_int code;
	cl_program one = clCreateProgramWithSource(context, 1, &text, NULL, &code);
	MUST(code);
	MUST(clBuildProgram(one, 1, &device[1], "", NULL, NULL));
	cl_kernel add = clt_kernel(one, "add");
	unsigned char host[1024] = {0};
	cl_mem buffer = new_buffer(CL_MEM_COPY_HOST_PTR, sizeof host, host);
	cl_uint k = 9;
	MUST(clSetKernelArg(add, 0, sizeof buffer, &buffer));
	MUST(clSetKernelArg(add, 1, sizeof k, &k));
	launch(queue[1], add, sizeof host, 0, NULL, NULL);
	MUST(clFinish(queue[1]));
	memset(host, 9, sizeof host);
	read_and_check("built for one", 0, buffer, host, sizeof host, NULL);
	size_t items = sizeof host;
	clt_code(clEnqueueNDRangeKernel(queue[0], add, 1, NULL, &items, NULL, 0, NULL, NULL), "on the other");
	clReleaseMemObject(buffer);
	clReleaseKernel(add);
	clReleaseProgram(one);
}

static void migrate(void) {
	both();
	static unsigned char host[SIZE];
	clt_fill(host, SIZE, 13);
	cl_mem buffer = new_buffer(CL_MEM_COPY_HOST_PTR, SIZE, host);
	for (int i = 0; i < 4; i++) {
		cl_event done;
		MUST(clEnqueueMigrateMemObjects(queue[i % 2], 1, &buffer, i == 3 ? CL_MIGRATE_MEM_OBJECT_HOST : 0, 0, NULL, &done));
		MUST(clFlush(queue[i % 2]));
		read_and_check("migrated", i % 2, buffer, host, SIZE, done);
		clReleaseEvent(done);
	}
	clReleaseMemObject(buffer);
}

static atomic_int called;

static void CL_CALLBACK count_call(cl_event event, cl_int status, void *data) {
	(void)event;
	if (status == CL_COMPLETE)
		atomic_fetch_add(&called, *(int *)data);
}

static void callbacks(void) {
	both();
	atomic_store(&called, 0);
	static int one = 1;
	static unsigned char host[4096];
	cl_mem buffer = new_buffer(0, sizeof host, NULL);
	cl_event done[20];
	for (int i = 0; i < 20; i++) {
		MUST(clEnqueueWriteBuffer(queue[i % 2], buffer, CL_FALSE, 0, sizeof host, host, i > 0, i ? &done[i - 1] : NULL, &done[i]));
		MUST(clFlush(queue[i % 2]));
		MUST(clSetEventCallback(done[i], CL_COMPLETE, count_call, &one));
	}
	MUST(clWaitForEvents(20, done));
	for (uint64_t end = clt_now() + 10000000000; atomic_load(&called) < 20 && clt_now() < end;)
		;
	CHECK(atomic_load(&called) == 20);
	for (int i = 0; i < 20; i++)
		clReleaseEvent(done[i]);
	clReleaseMemObject(buffer);
}

// Two contexts have nothing in common.
static void two_contexts(void) {
	both();
	enum { items = 1024 };
	cl_int code;
	cl_context own[2];
	cl_command_queue on[2];
	cl_mem buffer[2];
	cl_kernel add[2];
	cl_program built[2];
	unsigned char host[items] = {0};
	for (int i = 0; i < 2; i++) {
		own[i] = clCreateContext(NULL, 1, &device[i], NULL, NULL, &code);
		MUST(code);
		on[i] = clCreateCommandQueue(own[i], device[i], 0, &code);
		MUST(code);
		buffer[i] = clCreateBuffer(own[i], CL_MEM_COPY_HOST_PTR, items, host, &code);
		MUST(code);
		built[i] = new_program(own[i]);
		add[i] = clt_kernel(built[i], "add");
	}
	cl_event done[2];
	for (cl_uint k = 1; k < 50; k++)
		for (int i = 0; i < 2; i++) {
			cl_uint by = k * (cl_uint)(i + 1);
			MUST(clSetKernelArg(add[i], 0, sizeof buffer[i], &buffer[i]));
			MUST(clSetKernelArg(add[i], 1, sizeof by, &by));
			launch(on[i], add[i], items, 0, NULL, k == 49 ? &done[i] : NULL);
		}
	for (int i = 0; i < 2; i++) {
		unsigned char got[items];
		MUST(clEnqueueReadBuffer(on[i], buffer[i], CL_TRUE, 0, items, got, 0, NULL, NULL));
		memset(host, 49 * 25 * (i + 1), items);
		check_bytes("own context", got, host, items);
	}
	clt_code(clEnqueueReadBuffer(on[0], buffer[1], CL_TRUE, 0, items, host, 0, NULL, NULL), "buffer of another context");
	clt_code(clEnqueueMarkerWithWaitList(on[0], 1, &done[1], NULL), "event of another context");
	clt_code(clCreateCommandQueue(own[0], device[1], 0, &code) ? CL_SUCCESS : code, "device of another context");
	for (int i = 0; i < 2; i++) {
		clReleaseEvent(done[i]);
		clReleaseKernel(add[i]);
		clReleaseProgram(built[i]);
		clReleaseMemObject(buffer[i]);
		clReleaseCommandQueue(on[i]);
		clReleaseContext(own[i]);
	}
}

// One thread's work: a buffer of its own goes to and fro between the devices; one that no thread writes is read by all.
struct job {
	cl_mem common;
	const unsigned char *want;
	int seed, failed;
};

static cl_int to_and_fro(struct job *job, cl_mem buffer, cl_kernel add, unsigned char *host, unsigned char *got, size_t size) {
	cl_int code = clSetKernelArg(add, 0, sizeof buffer, &buffer);
	cl_event before = NULL;
	for (cl_uint i = 0; i < 40 && code == CL_SUCCESS; i++) {
		cl_event done;
		code = clSetKernelArg(add, 1, sizeof i, &i);
		if (code == CL_SUCCESS)
			code = clEnqueueNDRangeKernel(queue[(i + (cl_uint)job->seed) % 2], add, 1, NULL, &size, NULL, before != NULL, before ? &before : NULL, &done);
		if (before)
			clReleaseEvent(before);
		before = code == CL_SUCCESS ? done : NULL;
		if (before)
			code = clFlush(queue[(i + (cl_uint)job->seed) % 2]);
		for (size_t j = 0; j < size; j++)
			host[j] += (unsigned char)i;
		if (i % 8 != 7 || code != CL_SUCCESS)
			continue;
		code = clEnqueueReadBuffer(queue[i / 8 % 2], buffer, CL_TRUE, 0, size, got, 1, &before, NULL);
		job->failed += memcmp(got, host, size) != 0;
		if (code == CL_SUCCESS)
			code = clEnqueueReadBuffer(queue[i / 16 % 2], job->common, CL_TRUE, 0, size, got, 0, NULL, NULL);
		job->failed += memcmp(got, job->want, size) != 0;
	}
	if (before)
		clReleaseEvent(before);
	return code;
}

static void *work(void *data) {
	struct job *job = data;
	enum { size = 8192 };
	unsigned char host[size], got[size];
	clt_fill(host, size, (uint32_t)job->seed);
	cl_int code;
	cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, size, host, &code);
	cl_kernel add = code == CL_SUCCESS ? clCreateKernel(program, "add", &code) : NULL;
	if (code == CL_SUCCESS)
		code = to_and_fro(job, buffer, add, host, got, size);
	if (code != CL_SUCCESS) {
		clt_fail(__FILE__, __LINE__, "thread %d: %s", job->seed, clt_name(code));
		return NULL;
	}
	clReleaseKernel(add);
	clReleaseMemObject(buffer);
	return NULL;
}

static void threads(void) {
	both();
	enum { count = 6 };
	static unsigned char host[8192];
	clt_fill(host, sizeof host, 99);
	cl_mem common = new_buffer(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof host, host);
	pthread_t thread[count];
	struct job job[count];
	for (int i = 0; i < count; i++) {
		job[i] = (struct job){common, host, i, 0};
		CHECK(pthread_create(&thread[i], NULL, work, &job[i]) == 0);
	}
	for (int i = 0; i < count; i++) {
		pthread_join(thread[i], NULL);
		if (job[i].failed)
			clt_fail(__FILE__, __LINE__, "thread %d: %d times wrong", i, job[i].failed);
	}
	clReleaseMemObject(common);
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"facts", facts},
		{"written_and_read", written_and_read},
		{"kernels_in_turn", kernels_in_turn},
		{"diamond", diamond},
		{"copies", copies},
		{"maps", maps},
		{"images", images},
		{"user_events", user_events},
		{"out_of_order", out_of_order},
		{"binaries", binaries},
		{"built_for_one", built_for_one},
		{"migrate", migrate},
		{"callbacks", callbacks},
		{"two_contexts", two_contexts},
		{"threads", threads},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
