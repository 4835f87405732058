#include "work.h"

static const char *const source =
	"kernel void advance(global uint *at, uint by) { size_t i = get_global_id(0); at[i] = at[i] * 3 + by; }\n"
	"kernel void slow(global uint *at, uint by) {\n"
	"  uint x = by; for (uint i = 0; i < 2000000; i++) x = x * 1664525 + 1013904223; at[get_global_id(0)] += x & 1; }\n";

static cl_int open_rest(struct work *w) {
	cl_int code;
	cl_device_id device;
	code = clGetContextInfo(w->context, CL_CONTEXT_DEVICES, sizeof device, &device, NULL);
	if (code == CL_SUCCESS)
		w->queue = clCreateCommandQueue(w->context, device, 0, &code);
	if (code == CL_SUCCESS)
		w->kernel = clCreateKernel(w->program, "advance", &code);
	if (code == CL_SUCCESS)
		w->buffer = clCreateBuffer(w->context, CL_MEM_READ_WRITE, sizeof w->expected, NULL, &code);
	if (code == CL_SUCCESS)
		code = clSetKernelArg(w->kernel, 0, sizeof w->buffer, &w->buffer);
	return code;
}

cl_int work_open(struct work *w) {
	cl_platform_id platform;
	cl_device_id device;
	memset(w, 0, sizeof *w);
	cl_int code = clGetPlatformIDs(1, &platform, NULL);
	if (code == CL_SUCCESS)
		code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
	if (code == CL_SUCCESS)
		w->context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
	if (code == CL_SUCCESS)
		w->program = clCreateProgramWithSource(w->context, 1, (const char **)&source, NULL, &code);
	if (code == CL_SUCCESS)
		code = clBuildProgram(w->program, 0, NULL, NULL, NULL, NULL);
	return code == CL_SUCCESS ? open_rest(w) : code;
}

cl_int work_share(struct work *w, const struct work *from) {
	memset(w, 0, sizeof *w);
	w->context = from->context;
	w->program = from->program;
	cl_int code = clRetainContext(w->context);
	if (code == CL_SUCCESS)
		code = clRetainProgram(w->program);
	return code == CL_SUCCESS ? open_rest(w) : code;
}

cl_int work_round(struct work *w, cl_uint seed) {
	size_t items = work_items;
	cl_uint got[work_items];
	cl_event done = NULL;
	clt_fill(w->expected, sizeof w->expected, seed);
	cl_int code = clEnqueueWriteBuffer(w->queue, w->buffer, seed % 2, 0, sizeof w->expected, w->expected, 0, NULL, &done);
	if (code == CL_SUCCESS)
		code = clSetKernelArg(w->kernel, 1, sizeof seed, &seed);
	for (int i = 0; i < 3 && code == CL_SUCCESS; i++)
		code = clEnqueueNDRangeKernel(w->queue, w->kernel, 1, NULL, &items, NULL, 1, &done, NULL);
	if (code == CL_SUCCESS)
		code = clEnqueueReadBuffer(w->queue, w->buffer, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL);
	if (done)
		clReleaseEvent(done);
	for (size_t i = 0; i < work_items && code == CL_SUCCESS; i++) {
		for (int k = 0; k < 3; k++)
			w->expected[i] = w->expected[i] * 3 + seed;
		if (got[i] != w->expected[i])
			return 1;
	}
	return code;
}

cl_int work_load(struct work *w) {
	size_t items = 4;
	cl_uint by = 1;
	cl_int code;
	cl_kernel slow = clCreateKernel(w->program, "slow", &code);
	if (code != CL_SUCCESS)
		return code;
	code = clSetKernelArg(slow, 0, sizeof w->buffer, &w->buffer);
	if (code == CL_SUCCESS)
		code = clSetKernelArg(slow, 1, sizeof by, &by);
	for (int i = 0; i < 20 && code == CL_SUCCESS; i++)
		code = clEnqueueNDRangeKernel(w->queue, slow, 1, NULL, &items, NULL, 0, NULL, NULL);
	if (code == CL_SUCCESS)
		code = clFlush(w->queue);
	clReleaseKernel(slow);
	return code;
}

cl_int work_close(struct work *w) {
	cl_int code = CL_SUCCESS;
	if (w->buffer)
		code |= clReleaseMemObject(w->buffer);
	if (w->kernel)
		code |= clReleaseKernel(w->kernel);
	if (w->queue)
		code |= clReleaseCommandQueue(w->queue);
	if (w->program)
		code |= clReleaseProgram(w->program);
	if (w->context)
		code |= clReleaseContext(w->context);
	return code;
}

cl_int work_all(int rounds) {
	struct work w;
	cl_int code = work_open(&w);
	for (int i = 0; i < rounds && code == CL_SUCCESS; i++)
		code = work_round(&w, (cl_uint)i);
	if (code == CL_SUCCESS)
		return work_close(&w);
	work_close(&w);
	return code;
}
