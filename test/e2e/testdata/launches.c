/* launches: streams kernels that take about a millisecond. Prints "holding" when the first ones have run. For each line of
 * input it prints, SECONDS later, "launches N in T", the launches that ended and the seconds passed in the last two thirds of
 * that time: what was begun alone is over by then. On a busy machine the last launches may end long after the time. It goes on
 * until its input ends, so that another one that counts is never alone. The device has always more to do for it: on a machine that is busy with other things the program may come late, and
 * a program without work has no share.
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

enum { BATCH = 8, AHEAD = 16, MOST = BATCH * (AHEAD + 2) };

/* Launches in their order: those before done have ended, and their events are released. */
static cl_event launched[MOST];
static size_t done, next;

static void batch(size_t items)
{
	for (int i = 0; i < BATCH; i++)
		must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, &launched[next++ % MOST]), "launch");
	must(clFlush(queue), "flush");
}

/* forget releases the events of the launches before end. */
static void forget(size_t end)
{
	for (; done < end; done++)
		must(clReleaseEvent(launched[done % MOST]), "release");
}

/* step launches a batch and waits for the oldest one. */
static void step(size_t items)
{
	batch(items);
	must(clWaitForEvents(1, &launched[(done + BATCH - 1) % MOST]), "wait");
	forget(done + BATCH);
}

static void some(size_t items)
{
	for (int i = 0; i < BATCH; i++)
		must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "launch");
	must(clFinish(queue), "finish");
}

/* idle steps until there is input, and returns 0 at its end. */
static int idle(size_t items)
{
	int got;
	while ((got = input(0)) < 0)
		step(items);
	return got;
}

static void count(size_t items, double seconds)
{
	double end = now() + seconds, since, last;
	while ((since = now()) < end - seconds * 2 / 3)
		step(items);
	size_t from = done;
	while ((last = now()) < end)
		step(items);
	printf("launches %zu in %.6f\n", done - from, last - since);
}

/* tune finds how many turns take a millisecond of an idle device. */
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
	for (int i = 0; i < AHEAD; i++)
		batch(items);
	step(items);
	puts("holding");
	while (idle(items) > 0)
		count(items, seconds);
	must(clFinish(queue), "finish");
	forget(next);
	return 0;
}
