/* launches: streams kernels that take about a millisecond, a few at a time. Prints "holding" when the first ones have run, waits
 * for a line of input, then prints "launches N" after SECONDS, and goes on until its input ends, so that another one that
 * counts is never alone.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const char *source = "kernel void spin(global uint *a, uint turns) { uint x = get_global_id(0) + a[0]; for (uint i = 0; i < turns; i++) x = x * 1664525u + 1013904223u; a[get_global_id(0)] = x; }";

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void must(cl_int code, const char *what)
{
	if (code != CL_SUCCESS) {
		printf("%s failed %d\n", what, code);
		exit(3);
	}
}

static int input(int wait)
{
	struct pollfd p = {.fd = 0, .events = POLLIN};
	char line[16];
	if (poll(&p, 1, wait ? -1 : 0) <= 0)
		return -1;
	return (int)read(0, line, sizeof line);
}

static cl_command_queue queue;
static cl_kernel kernel;

static void some(size_t items)
{
	for (int i = 0; i < 8; i++)
		must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "launch");
	must(clFinish(queue), "finish");
}

/* tune finds how many turns take a millisecond of a device that nobody else uses. */
static void tune(size_t items)
{
	for (cl_uint turns = 1000;; turns *= 2) {
		must(clSetKernelArg(kernel, 1, sizeof turns, &turns), "argument");
		some(items);
		double since = now();
		some(items);
		if (now() - since > 0.008)
			return;
	}
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	cl_uint turns = argc > 2 ? (cl_uint)atoi(argv[2]) : 0;
	size_t items = 64;
	cl_platform_id platform;
	cl_device_id device;
	cl_int code;
	setvbuf(stdout, NULL, _IOLBF, 0);
	must(clGetPlatformIDs(1, &platform, NULL), "platform");
	must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
	cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
	must(code, "context");
	queue = clCreateCommandQueue(context, device, 0, &code);
	must(code, "queue");
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
	must(code, "program");
	must(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
	kernel = clCreateKernel(program, "spin", &code);
	must(code, "kernel");
	cl_mem memory = clCreateBuffer(context, 0, 4096, NULL, &code);
	must(code, "buffer");
	must(clSetKernelArg(kernel, 0, sizeof memory, &memory), "argument");
	if (turns)
		must(clSetKernelArg(kernel, 1, sizeof turns, &turns), "argument");
	else
		tune(items);
	some(items);
	puts("holding");
	while (input(0) < 0)
		some(items);
	double end = now() + seconds;
	long count = 0;
	for (; now() < end; count += 8)
		some(items);
	printf("launches %ld\n", count);
	while (input(0) < 0)
		some(items);
	return 0;
}
