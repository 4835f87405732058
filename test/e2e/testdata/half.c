/* half: uses two devices in one context, prints "holding" and reads through both in turn until one fails. Prints
 * "ended CODE SECONDS" then, and tries all that the other must still do: "other ok" or "other LINE CODE".
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZE = 4096 };

static const char *source = "kernel void add(global int *a, int k) { a[get_global_id(0)] += k; }";
static cl_device_id device[2];
static cl_context context;
static cl_command_queue queue[2];
static cl_mem buffer[2];
static cl_program program;

#define TRY(code) do { cl_int try_code = (code); if (try_code != CL_SUCCESS) { printf("%s %d %d\n", what, __LINE__, try_code); exit(3); } } while (0)

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void start(const char *what)
{
	cl_platform_id platform;
	cl_uint count = 0;
	cl_int code;
	TRY(clGetPlatformIDs(1, &platform, NULL));
	TRY(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 2, device, &count));
	TRY(count == 2 ? CL_SUCCESS : (cl_int)count);
	context = clCreateContext(NULL, 2, device, NULL, NULL, &code);
	TRY(code);
	program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
	TRY(code);
	TRY(clBuildProgram(program, 0, NULL, "", NULL, NULL));
	for (int i = 0; i < 2; i++) {
		int zero[SIZE / sizeof(int)] = {0};
		queue[i] = clCreateCommandQueue(context, device[i], 0, &code);
		TRY(code);
		buffer[i] = clCreateBuffer(context, CL_MEM_READ_WRITE, SIZE, NULL, &code);
		TRY(code);
		TRY(clEnqueueWriteBuffer(queue[i], buffer[i], CL_TRUE, 0, SIZE, zero, 0, NULL, NULL));
	}
}

/* add launches on one device and checks what comes back. */
static void add(const char *what, int which, cl_program from, cl_mem to, int value)
{
	cl_int code, k = 1, got[SIZE / sizeof(cl_int)];
	size_t items = SIZE / sizeof k;
	cl_kernel kernel = clCreateKernel(from, "add", &code);
	TRY(code);
	TRY(clSetKernelArg(kernel, 0, sizeof to, &to));
	TRY(clSetKernelArg(kernel, 1, sizeof k, &k));
	TRY(clEnqueueNDRangeKernel(queue[which], kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
	TRY(clFinish(queue[which]));
	TRY(clEnqueueReadBuffer(queue[which], to, CL_TRUE, 0, SIZE, got, 0, NULL, NULL));
	TRY(got[0] == value && got[items - 1] == value ? CL_SUCCESS : got[0] - 1000);
	TRY(clReleaseKernel(kernel));
}

/* other does with the device that is left what a program would. */
static void other(const char *what, int left)
{
	cl_int code;
	add(what, left, program, buffer[left], 1);
	cl_mem more = clCreateBuffer(context, CL_MEM_READ_WRITE, SIZE, NULL, &code);
	TRY(code);
	int two = 2;
	TRY(clEnqueueFillBuffer(queue[left], more, &two, sizeof two, 0, SIZE, 0, NULL, NULL));
	add(what, left, program, more, 3);
	cl_program again = clCreateProgramWithSource(context, 1, &source, NULL, &code);
	TRY(code);
	TRY(clBuildProgram(again, 1, &device[left], "-DAGAIN", NULL, NULL));
	add(what, left, again, more, 4);
	/* A context of its own. */
	clReleaseContext(context);
	context = clCreateContext(NULL, 1, &device[left], NULL, NULL, &code);
	TRY(code);
	cl_command_queue own = clCreateCommandQueue(context, device[left], 0, &code);
	TRY(code);
	more = clCreateBuffer(context, CL_MEM_READ_WRITE, SIZE, NULL, &code);
	TRY(code);
	TRY(clEnqueueFillBuffer(own, more, &two, sizeof two, 0, SIZE, 0, NULL, NULL));
	TRY(clFinish(own));
	printf("other ok\n");
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	start("start");
	puts("holding");
	for (int i = 0;; i = !i) {
		int value;
		double since = now();
		cl_int code = clEnqueueReadBuffer(queue[i], buffer[i], CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
		if (code == CL_SUCCESS)
			continue;
		printf("ended %d %.3f\n", code, now() - since);
		int avail = CL_TRUE;
		clGetDeviceInfo(device[i], CL_DEVICE_AVAILABLE, sizeof avail, &avail, NULL);
		printf("available %d\n", avail);
		other("other", !i);
		return 0;
	}
}
