/* hold MODE: uses the first OpenCL device, prints "holding", and does something that lasts until the device goes:
 *   finish  waits in clFinish for a command that never runs
 *   read    reads in a loop, blocking
 *   stream  enqueues launches in a loop, a finish now and then
 *   alloc N allocates N buffers of 1 MiB and writes them, then prints what failed
 *   crash   runs a kernel that writes out of bounds
 * When a call fails it prints "ended CODE SECONDS": the code, and how long that call took.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static cl_context context;
static cl_command_queue queue;
static cl_device_id device;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int ended(cl_int status, double since)
{
	printf("ended %d %.3f\n", status, now() - since);
	return 7;
}

static cl_kernel build(const char *source, const char *name)
{
	cl_int status;
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
	if (status == CL_SUCCESS)
		status = clBuildProgram(program, 1, &device, "", NULL, NULL);
	cl_kernel kernel = status == CL_SUCCESS ? clCreateKernel(program, name, &status) : NULL;
	if (status != CL_SUCCESS) {
		printf("build failed %d\n", status);
		exit(3);
	}
	return kernel;
}

static int hold_finish(void)
{
	cl_event gate = clCreateUserEvent(context, NULL);
	cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, NULL);
	int zero = 0;
	clEnqueueFillBuffer(queue, memory, &zero, sizeof zero, 0, 4096, 1, &gate, NULL);
	puts("holding");
	double since = now();
	return ended(clFinish(queue), since);
}

static int hold_read(void)
{
	cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, NULL);
	int value = 0;
	clEnqueueFillBuffer(queue, memory, &value, sizeof value, 0, 4096, 0, NULL, NULL);
	puts("holding");
	for (;;) {
		double since = now();
		cl_int status = clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
		if (status != CL_SUCCESS)
			return ended(status, since);
	}
}

static int hold_stream(void)
{
	cl_kernel kernel = build("kernel void add(global int *a) { a[get_global_id(0)]++; }", "add");
	cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, NULL);
	clSetKernelArg(kernel, 0, sizeof memory, &memory);
	size_t global = 64;
	puts("holding");
	for (unsigned i = 0;; i++) {
		double since = now();
		cl_int status = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
		if (status == CL_SUCCESS && i % 100 == 99)
			status = clFinish(queue);
		if (status != CL_SUCCESS)
			return ended(status, since);
	}
}

static int hold_alloc(int count)
{
	static char block[1 << 20];
	double since = now();
	for (int i = 0; i < count; i++) {
		cl_int status;
		cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof block, NULL, &status);
		if (status == CL_SUCCESS)
			status = clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, sizeof block, block, 0, NULL, NULL);
		if (status == CL_SUCCESS)
			status = clFinish(queue);
		if (status != CL_SUCCESS) {
			printf("allocated %d\n", i);
			return ended(status, since);
		}
	}
	printf("allocated %d\n", count);
	return 0;
}

static int hold_crash(void)
{
	cl_kernel kernel = build("kernel void stray(global int *a, ulong far) { *(global int *)((global char *)a + far) = 1; }", "stray");
	cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, NULL);
	cl_ulong far = 1ul << 45;
	clSetKernelArg(kernel, 0, sizeof memory, &memory);
	clSetKernelArg(kernel, 1, sizeof far, &far);
	size_t global = 1;
	puts("holding");
	double since = now();
	cl_int status = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
	if (status == CL_SUCCESS)
		status = clFinish(queue);
	return ended(status, since);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	cl_platform_id platform;
	cl_int status = clGetPlatformIDs(1, &platform, NULL);
	if (status == CL_SUCCESS)
		status = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
	if (status == CL_SUCCESS)
		context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	if (status == CL_SUCCESS)
		queue = clCreateCommandQueue(context, device, 0, &status);
	if (status != CL_SUCCESS) {
		printf("no device %d\n", status);
		return 2;
	}
	const char *mode = argc > 1 ? argv[1] : "";
	if (!strcmp(mode, "finish"))
		return hold_finish();
	if (!strcmp(mode, "read"))
		return hold_read();
	if (!strcmp(mode, "stream"))
		return hold_stream();
	if (!strcmp(mode, "alloc"))
		return hold_alloc(argc > 2 ? atoi(argv[2]) : 1);
	if (!strcmp(mode, "crash"))
		return hold_crash();
	fprintf(stderr, "usage: hold finish|read|stream|alloc N|crash\n");
	return 64;
}
