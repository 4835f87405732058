/* load: a program that measures the latency of its launches, or one that takes all that it can get of something.
 *
 *   load victim SECONDS   launches a kernel of about a millisecond and waits for it, again and again; prints the microseconds
 *                         of each, a line each
 *   load peer             does the same without an end, and prints nothing: no attack, but the other half of a fair share
 *   load device           kernels of about ten milliseconds, without waiting
 *   load ring             small messages, without waiting
 *   load link             writes of 16 MiB
 *   load memory           kernels that copy 128 MiB
 *   load log              kernels that print
 *
 * It prints "ready" when the first one is done; the attackers go on until they are killed.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *source =
	"kernel void spin(global uint *a, uint turns) { uint x = get_global_id(0) + a[0]; for (uint i = 0; i < turns; i++) x = x * 1664525u + 1013904223u; a[get_global_id(0)] = x; }"
	"kernel void copy(global uint *a, uint to) { uint i = get_global_id(0); for (uint k = 0; k < 1024; k++) a[to + i * 1024 + k] = a[i * 1024 + k]; }"
	"kernel void print(global uint *a, uint n) { for (uint i = 0; i < n; i++) printf(\"0123456789 0123456789 0123456789 0123456789\\n\"); }";

static void must(cl_int code, const char *what)
{
	if (code != CL_SUCCESS) {
		fprintf(stderr, "%s failed %d\n", what, code);
		exit(3);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static cl_command_queue queue;
static cl_kernel kernel;
static cl_mem buffer;

enum { HALF = 128 << 20, PIECE = 16 << 20 };

static void launch(size_t items, cl_uint number)
{
	must(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "argument");
	must(clSetKernelArg(kernel, 1, sizeof number, &number), "argument");
	must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "launch");
}

/* round takes a share of what mode is about. It returns whether to wait then. */
static int round_of(const char *mode, int n, void *data)
{
	if (!strcmp(mode, "peer")) {
		launch(256, 4000);
		return 1;
	}
	if (!strcmp(mode, "device")) {
		launch(256, 40000);
		return n % 16 == 15;
	}
	if (!strcmp(mode, "ring")) {
		launch(1, 1);
		return n % 4096 == 4095;
	}
	if (!strcmp(mode, "link")) {
		must(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, PIECE, data, 0, NULL, NULL), "write");
		return n % 4 == 3;
	}
	if (!strcmp(mode, "memory")) {
		launch(HALF / 4 / 1024, HALF / 4);
		return n % 4 == 3;
	}
	launch(1, 1000);
	return n % 4 == 3;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "victim";
	cl_platform_id platform;
	cl_device_id device;
	cl_int code;
	must(clGetPlatformIDs(1, &platform, NULL), "platform");
	must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
	cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
	must(code, "context");
	queue = clCreateCommandQueue(context, device, 0, &code);
	must(code, "queue");
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
	must(code, "program");
	must(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
	kernel = clCreateKernel(program, !strcmp(mode, "memory") ? "copy" : !strcmp(mode, "log") ? "print" : "spin", &code);
	must(code, "kernel");
	buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 2u * HALF, NULL, &code);
	must(code, "buffer");
	void *data = calloc(1, PIECE);
	int victim = !strcmp(mode, "victim");
	if (victim)
		launch(256, 4000);
	else
		round_of(mode, 0, data);
	must(clFinish(queue), "finish");
	if (!strcmp(mode, "log"))
		fprintf(stderr, "ready\n");
	else
		printf("ready\n"), fflush(stdout);
	double end = victim && argc > 2 ? now() + atof(argv[2]) : 1e300;
	for (int n = 0; now() < end; n++) {
		if (victim) {
			double began = now();
			launch(256, 4000);
			must(clFinish(queue), "finish");
			printf("%.1f\n", (now() - began) * 1e6);
		} else if (round_of(mode, n, data)) {
			must(clFinish(queue), "finish");
		}
	}
	return 0;
}
