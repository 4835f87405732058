// The small measurements of `make bench-accel`: one JSON object per line,
//   {"name": ..., "unit": ..., "value": median, "best": ..., "p90": ..., "runs": ...}
// Flags, each followed by a number (defaults in brackets): -reads [2000], -alternate [1000],
// -launches [1000], -small [1000], -streams [20] runs of 1,000 launches, -hundreds [20] runs of 100
// launches and a finish, -megabytes [256], -transfers [7], -warm [200]. -only NAME runs one
// measurement; the number 0 leaves a measurement out.
//
// "startup" is measured before anything is warm, so a median needs several runs of the program with
// -only startup.
#define _GNU_SOURCE
#include "clt.h"

#include <errno.h>

struct options {
	long reads, alternate, launches, small, streams, hundreds, megabytes, transfers, warm;
	const char *only;
};

static struct {
	cl_device_id device;
	cl_context context;
	cl_command_queue queue;
	cl_program program;
	cl_kernel kernel;
	cl_mem buffer, page, image, copy;
} cl;

enum { side = 16 }; // pixels of the tiny images

static void die(const char *what, cl_int code) {
	fprintf(stderr, "bench: %s: %s\n", what, clt_name(code));
	exit(1);
}

#define DO(call) \
	do { \
		cl_int do_code = (call); \
		if (do_code != CL_SUCCESS) \
			die(#call, do_code); \
	} while (0)

// --- reporting ----------------------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

// report sorts the values. best is the smallest, or the largest of a rate.
static void report(const char *name, const char *unit, double *values, long count, bool rate) {
	qsort(values, (size_t)count, sizeof *values, by_value);
	printf("{\"name\": \"%s\", \"unit\": \"%s\", \"value\": %.3f, \"best\": %.3f, \"p90\": %.3f, \"runs\": %ld}\n", name, unit,
		values[count / 2], rate ? values[count - 1] : values[0], values[rate ? count / 10 : count * 9 / 10], count);
	fflush(stdout);
}

static double *room(long count) {
	double *values = calloc((size_t)count, sizeof *values);
	if (!values)
		exit(1);
	return values;
}

static double since_us(uint64_t start) { return (double)(clt_now() - start) / 1e3; }

// --- the first result ---------------------------------------------------------------------------

static const char *const source = "kernel void add(global uint *at, uint value) { at[get_global_id(0)] += value; }";

// The waits that the program itself requests: the build and the last read. All other calls need no
// answer of the device that was not known before.
enum { own_waits = 2 };

static void start(bool quiet) {
	cl_platform_id platform;
	cl_int code;
	cl_uint value = 41, one = 1;
	size_t items = 1;
	uint64_t begin = clt_now();
	DO(clGetPlatformIDs(1, &platform, NULL));
	DO(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &cl.device, NULL));
	double devices = since_us(begin);
	cl.context = clCreateContext(NULL, 1, &cl.device, NULL, NULL, &code);
	DO(code);
	cl.queue = clCreateCommandQueue(cl.context, cl.device, 0, &code);
	DO(code);
	double queue = since_us(begin);
	cl.program = clCreateProgramWithSource(cl.context, 1, (const char **)&source, NULL, &code);
	DO(code);
	DO(clBuildProgram(cl.program, 1, &cl.device, NULL, NULL, NULL));
	double built = since_us(begin);
	cl.buffer = clCreateBuffer(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof value, &value, &code);
	DO(code);
	cl.kernel = clCreateKernel(cl.program, "add", &code);
	DO(code);
	DO(clSetKernelArg(cl.kernel, 0, sizeof cl.buffer, &cl.buffer));
	DO(clSetKernelArg(cl.kernel, 1, sizeof one, &one));
	DO(clEnqueueNDRangeKernel(cl.queue, cl.kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
	DO(clEnqueueReadBuffer(cl.queue, cl.buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
	double all = since_us(begin);
	if (value != 42)
		die("first result is wrong", CL_SUCCESS);
	if (!quiet)
		printf("{\"name\": \"startup\", \"unit\": \"us\", \"value\": %.1f, \"devices\": %.1f, \"queue\": %.1f, \"built\": %.1f, "
			"\"own_waits\": %d, \"runs\": 1}\n", all, devices, queue, built, own_waits);
}

// --- small things -------------------------------------------------------------------------------

static void read_one(void) {
	cl_uint value;
	DO(clEnqueueReadBuffer(cl.queue, cl.buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
}

static void write_and_read(void) {
	static cl_uint value;
	cl_uint got = 0;
	value++;
	DO(clEnqueueWriteBuffer(cl.queue, cl.buffer, CL_FALSE, 0, sizeof value, &value, 0, NULL, NULL));
	DO(clEnqueueReadBuffer(cl.queue, cl.buffer, CL_TRUE, 0, sizeof got, &got, 0, NULL, NULL));
	if (got != value)
		die("read something else than was written", CL_SUCCESS);
}

static void launch(void) {
	size_t items = 1;
	DO(clEnqueueNDRangeKernel(cl.queue, cl.kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

static void launch_and_finish(void) {
	launch();
	DO(clFinish(cl.queue));
}

static void launches(int count) {
	for (int i = 0; i < count; i++)
		launch();
	DO(clFinish(cl.queue));
}

// A launch and a read of an array of 4 KiB, as PyOpenCL's small programs do.
static void launch_and_read(void) {
	static unsigned char page[4096];
	launch();
	DO(clEnqueueReadBuffer(cl.queue, cl.page, CL_TRUE, 0, sizeof page, page, 0, NULL, NULL));
}

// Maps an image, writes it and unmaps it, as OpenCL-CTS does.
static void map_image(void) {
	static const size_t origin[3], region[3] = {side, side, 1};
	static cl_uchar value;
	size_t pitch;
	cl_int code;
	cl_uchar *at = clEnqueueMapImage(cl.queue, cl.image, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, origin, region, &pitch, NULL, 0, NULL, NULL, &code);
	DO(code);
	if (at[0] != value)
		die("the mapped image has lost what was written", CL_SUCCESS);
	at[0] = ++value;
	DO(clEnqueueUnmapMemObject(cl.queue, cl.image, at, 0, NULL, NULL));
}

// The same, with a command on the device that writes the image in between.
static void map_copied_image(void) {
	static const size_t origin[3], region[3] = {side, side, 1};
	size_t pitch;
	cl_int code;
	DO(clEnqueueCopyImage(cl.queue, cl.image, cl.copy, origin, origin, region, 0, NULL, NULL));
	void *at = clEnqueueMapImage(cl.queue, cl.copy, CL_TRUE, CL_MAP_READ, origin, region, &pitch, NULL, 0, NULL, NULL, &code);
	DO(code);
	DO(clEnqueueUnmapMemObject(cl.queue, cl.copy, at, 0, NULL, NULL));
}

static cl_mem tiny_image(void) {
	static unsigned char zeros[side * side * 4];
	const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
	const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = side, .image_height = side};
	cl_int code;
	cl_mem image = clCreateImage(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &desc, zeros, &code);
	DO(code);
	return image;
}

static void prepare_small(void) {
	cl_int code;
	cl.page = clCreateBuffer(cl.context, CL_MEM_READ_WRITE, 4096, NULL, &code);
	DO(code);
	cl.image = tiny_image();
	cl.copy = tiny_image();
}

static void thousand_launches(void) { launches(1000); }

static void hundred_launches(void) { launches(100); }

// measure times a function, after some warm-up runs.
static void measure(const char *name, void (*thing)(void), long count, long warm, double divisor) {
	double *values = room(count);
	for (long i = 0; i < warm; i++)
		thing();
	for (long i = 0; i < count; i++) {
		uint64_t begin = clt_now();
		thing();
		values[i] = since_us(begin) / divisor;
	}
	report(name, "us", values, count, false);
	free(values);
}

// Measures the enqueueing alone of 1,000 launches, without the wait for them.
static void enqueue_only(long count) {
	double *values = room(count);
	for (long i = 0; i < count; i++) {
		uint64_t begin = clt_now();
		for (int k = 0; k < 1000; k++)
			launch();
		values[i] = since_us(begin) / 1000;
		DO(clFinish(cl.queue));
	}
	report("launch_enqueue", "us", values, count, false);
	free(values);
}

// --- large things -------------------------------------------------------------------------------

// word_at returns the i-th of a sequence of random words (SplitMix64), which takes a fraction of the
// time of clt_fill and clt_hash: no layer may profit from zeros.
static uint64_t word_at(size_t i) {
	uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static void transfers(long megabytes, long count) {
	size_t bytes = (size_t)megabytes << 20, words = bytes / sizeof(uint64_t);
	cl_int code;
	cl_mem large = clCreateBuffer(cl.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
	DO(code);
	uint64_t *host = malloc(bytes);
	double *write = room(count), *read = room(count);
	if (!host)
		exit(1);
	for (size_t i = 0; i < words; i++)
		host[i] = word_at(i);
	for (long i = -1; i < count; i++) { // the first one touches the memory of both sides
		uint64_t begin = clt_now();
		DO(clEnqueueWriteBuffer(cl.queue, large, CL_TRUE, 0, bytes, host, 0, NULL, NULL));
		double us = since_us(begin);
		if (i >= 0)
			write[i] = (double)bytes / us / 1e3;
		if (i == count - 1)
			memset(host, 0, bytes);
		begin = clt_now();
		DO(clEnqueueReadBuffer(cl.queue, large, CL_TRUE, 0, bytes, host, 0, NULL, NULL));
		us = since_us(begin);
		if (i >= 0)
			read[i] = (double)bytes / us / 1e3;
	}
	for (size_t i = 0; i < words; i++)
		if (host[i] != word_at(i))
			die("large transfer came back different", CL_SUCCESS);
	report("write_large", "GB/s", write, count, true);
	report("read_large", "GB/s", read, count, true);
	DO(clReleaseMemObject(large));
	free(host);
	free(write);
	free(read);
}

// --- arguments ----------------------------------------------------------------------------------

static bool parse(int argc, char **argv, struct options *o) {
	const struct {
		const char *name;
		long *value;
	} flags[] = {{"-reads", &o->reads}, {"-alternate", &o->alternate}, {"-launches", &o->launches}, {"-small", &o->small}, {"-streams", &o->streams},
		{"-hundreds", &o->hundreds}, {"-megabytes", &o->megabytes}, {"-transfers", &o->transfers}, {"-warm", &o->warm}};
	for (int i = 1; i + 1 < argc; i += 2) {
		size_t f = 0;
		if (strcmp(argv[i], "-only") == 0) {
			o->only = argv[i + 1];
			continue;
		}
		while (f < sizeof flags / sizeof *flags && strcmp(argv[i], flags[f].name) != 0)
			f++;
		if (f == sizeof flags / sizeof *flags)
			return false;
		char *end;
		errno = 0;
		*flags[f].value = strtol(argv[i + 1], &end, 10);
		if (*end || errno || *flags[f].value < 0)
			return false;
	}
	return argc % 2 == 1;
}

static bool wanted(const struct options *o, const char *name, long count) {
	return count > 0 && (!o->only || strcmp(o->only, name) == 0);
}

int main(int argc, char **argv) {
	struct options o = {2000, 1000, 1000, 1000, 20, 20, 256, 7, 200, NULL};
	if (!parse(argc, argv, &o)) {
		fprintf(stderr, "usage: %s [-only NAME] [-reads N] [-alternate N] [-launches N] [-small N] [-streams N] [-hundreds N] "
			"[-megabytes N] [-transfers N] [-warm N]\n", argv[0]);
		return 2;
	}
	start(!wanted(&o, "startup", 1));
	if (wanted(&o, "read_small", o.reads))
		measure("read_small", read_one, o.reads, o.warm, 1);
	if (wanted(&o, "write_read", o.alternate))
		measure("write_read", write_and_read, o.alternate, o.warm, 1);
	if (wanted(&o, "launch_finish", o.launches))
		measure("launch_finish", launch_and_finish, o.launches, o.warm, 1);
	if (o.small > 0)
		prepare_small();
	if (wanted(&o, "launch_read", o.small))
		measure("launch_read", launch_and_read, o.small, o.warm, 1);
	if (wanted(&o, "image_map", o.small))
		measure("image_map", map_image, o.small, o.warm, 1);
	if (wanted(&o, "image_copy_map", o.small))
		measure("image_copy_map", map_copied_image, o.small, o.warm, 1);
	if (wanted(&o, "launch_stream", o.streams))
		measure("launch_stream", thousand_launches, o.streams, 1, 1000);
	if (wanted(&o, "launch_enqueue", o.streams))
		enqueue_only(o.streams);
	if (wanted(&o, "hundred_launches", o.hundreds))
		measure("hundred_launches", hundred_launches, o.hundreds, 1, 1);
	if (wanted(&o, "transfers", o.transfers) && o.megabytes > 0)
		transfers(o.megabytes, o.transfers);
	return 0;
}
