// Kernels: arguments of every kind and size, launches of every shape, queries, clones.
#include "clt.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static cl_mem out_buffer(size_t bytes) {
	cl_mem out = clt_buffer(CL_MEM_READ_WRITE, bytes, NULL);
	cl_uint zero = 0;
	MUST(clEnqueueFillBuffer(clt_queue(), out, &zero, 1, 0, bytes, 0, NULL, NULL));
	return out;
}

static void fetch(cl_mem from, void *to, size_t bytes) {
	MUST(clEnqueueReadBuffer(clt_queue(), from, CL_TRUE, 0, bytes, to, 0, NULL, NULL));
}

static void launch(cl_kernel kernel, size_t items) {
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

// --- arguments ----------------------------------------------------------------------------------

static const struct {
	const char *name;
	size_t bytes;
} scalars[] = {{"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"int", 4}, {"uint", 4}, {"long", 8}, {"ulong", 8},
	{"float", 4}};
static const size_t widths[] = {1, 2, 3, 4, 8, 16};

// pass_values passes a value of each scalar type and the given width to one kernel: drivers may take as
// long to compile a kernel as to launch it a thousand times.
static void pass_values(cl_program program, size_t width) {
	char name[16];
	unsigned char values[COUNT(scalars)][128], got[COUNT(scalars)][128];
	snprintf(name, sizeof name, "pass%zu", width);
	cl_kernel kernel = clt_kernel(program, name);
	cl_mem out = out_buffer(sizeof got);
	MUST(clSetKernelArg(kernel, COUNT(scalars), sizeof out, &out));
	for (cl_uint s = 0; s < COUNT(scalars); s++) {
		unsigned char value[128];
		size_t stored = scalars[s].bytes * (width == 3 ? 4 : width);
		clt_fill(value, sizeof value, (uint32_t)(stored + s));
		if (strcmp(scalars[s].name, "float") == 0)
			for (size_t i = 3; i < sizeof value; i += 4)
				value[i] = 0x3f; // keeps clear of NaNs, whose bits need not survive
		clt_code(clSetKernelArg(kernel, s, stored + 1, value), "%s%zu one byte more", scalars[s].name, width);
		MUST(clSetKernelArg(kernel, s, stored, value));
		memcpy(values[s], value, sizeof value);
		memset(value, 0, sizeof value);
	}
	launch(kernel, 1);
	fetch(out, got, sizeof got);
	for (size_t s = 0; s < COUNT(scalars); s++)
		CHECK(memcmp(got[s], values[s], scalars[s].bytes * width) == 0);
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
}

// append_pass appends the source of the kernel for values of one width.
static void append_pass(char *source, size_t size, size_t width) {
	char part[96], suffix[4] = "";
	if (width > 1)
		snprintf(suffix, sizeof suffix, "%d", (int)width);
	snprintf(source + strlen(source), size - strlen(source), "kernel void pass%d(", (int)width);
	for (size_t s = 0; s < COUNT(scalars); s++) {
		snprintf(part, sizeof part, "%s%s v%d, ", scalars[s].name, suffix, (int)s);
		strcat(source, part);
	}
	strcat(source, "global uchar *out) {\n");
	for (size_t s = 0; s < COUNT(scalars); s++) {
		snprintf(part, sizeof part, "  *(global %s%s *)(out + %d) = v%d;\n", scalars[s].name, suffix, (int)s * 128, (int)s);
		strcat(source, part);
	}
	strcat(source, "}\n");
}

static void values(void) {
	char source[16384] = "";
	for (size_t w = 0; w < COUNT(widths); w++)
		append_pass(source, sizeof source, widths[w]);
	cl_program program = clt_build(source, NULL);
	for (size_t w = 0; w < COUNT(widths); w++)
		pass_values(program, widths[w]);
	MUST(clReleaseProgram(program));
}

struct mixed {
	cl_char c;
	cl_short s;
	cl_int i;
	cl_long l;
	cl_float f[3];
	cl_uchar tail[5];
};

static void structs(void) {
	static const char source[] =
		"struct mixed { char c; short s; int i; long l; float f[3]; uchar tail[5]; };\n"
		"struct wide { uint a[200]; };\n"
		"kernel void mixed(struct mixed m, global struct mixed *out) { *out = m; }\n"
		"kernel void wide(uint before, struct wide w, uint after, global uint *out) {\n"
		"  for (int i = 0; i < 200; i++) out[i + 1] = w.a[i]; out[0] = before; out[201] = after; }\n";
	cl_program program = clt_build(source, NULL);
	cl_kernel kernel = clt_kernel(program, "mixed");
	struct mixed in = {1, -2, 3, -4, {5, 6, 7}, {8, 9, 10, 11, 12}}, got;
	cl_mem out = out_buffer(1024);
	MUST(clSetKernelArg(kernel, 0, sizeof in, &in));
	MUST(clSetKernelArg(kernel, 1, sizeof out, &out));
	launch(kernel, 1);
	fetch(out, &got, sizeof got);
	CHECK(got.c == 1 && got.s == -2 && got.i == 3 && got.l == -4 && got.f[2] == 7 && got.tail[4] == 12);
	clt_code(clSetKernelArg(kernel, 0, sizeof in - 8, &in), "short struct");
	MUST(clReleaseKernel(kernel));
	kernel = clt_kernel(program, "wide");
	cl_uint wide[200], all[202], before = 0xb, after = 0xa;
	clt_fill(wide, sizeof wide, 6);
	MUST(clSetKernelArg(kernel, 0, 4, &before));
	MUST(clSetKernelArg(kernel, 1, sizeof wide, wide));
	MUST(clSetKernelArg(kernel, 2, 4, &after));
	MUST(clSetKernelArg(kernel, 3, sizeof out, &out));
	launch(kernel, 1);
	fetch(out, all, sizeof all);
	CHECK(all[0] == before && all[201] == after && memcmp(all + 1, wide, sizeof wide) == 0);
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseProgram(program));
}

enum { many_count = 64 };

static void many(void) {
	char source[8192] = "kernel void many(global ulong *out";
	char part[64];
	for (int i = 0; i < many_count; i++) {
		snprintf(part, sizeof part, ", %s a%d", i % 3 == 0 ? "uchar" : i % 3 == 1 ? "ulong" : "ushort", i);
		strcat(source, part);
	}
	strcat(source, ") {");
	for (int i = 0; i < many_count; i++) {
		snprintf(part, sizeof part, " out[%d] = a%d;", i, i);
		strcat(source, part);
	}
	strcat(source, " }");
	cl_program program = clt_build(source, NULL);
	cl_kernel kernel = clt_kernel(program, "many");
	cl_mem out = out_buffer(many_count * 8);
	MUST(clSetKernelArg(kernel, 0, sizeof out, &out));
	for (cl_uint i = many_count; i-- > 0;) { // from the last to the first
		cl_ulong value = i * 3 + 1;
		MUST(clSetKernelArg(kernel, i + 1, i % 3 == 0 ? 1 : i % 3 == 1 ? 8 : 2, &value));
	}
	launch(kernel, 1);
	cl_ulong got[many_count];
	fetch(out, got, sizeof got);
	for (cl_uint i = 0; i < many_count; i++)
		CHECK(got[i] == i * 3 + 1);
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

static void local_memory(void) {
	static const char source[] =
		"kernel void turn(global const uint *in, local uint *a, local ulong *b, global ulong *out) {\n"
		"  size_t i = get_local_id(0), n = get_local_size(0);\n"
		"  a[i] = in[get_global_id(0)]; b[i] = a[i] * 2ul;\n"
		"  barrier(CLK_LOCAL_MEM_FENCE);\n"
		"  out[get_global_id(0)] = a[n - 1 - i] + b[(i + 1) % n]; }\n";
	enum { items = 256 };
	static const size_t groups[] = {1, 4, 32, 64};
	cl_program program = clt_build(source, NULL);
	cl_kernel kernel = clt_kernel(program, "turn");
	cl_uint values[items];
	clt_fill(values, sizeof values, 9);
	cl_mem in = clt_buffer(CL_MEM_COPY_HOST_PTR | CL_MEM_READ_ONLY, sizeof values, values), out = out_buffer(items * 8);
	MUST(clSetKernelArg(kernel, 0, sizeof in, &in));
	MUST(clSetKernelArg(kernel, 3, sizeof out, &out));
	for (size_t g = 0; g < COUNT(groups); g++) {
		size_t n = groups[g], all = items;
		cl_ulong got[items];
		MUST(clSetKernelArg(kernel, 1, n * 4, NULL));
		MUST(clSetKernelArg(kernel, 2, n * 8, NULL));
		MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &all, &n, 0, NULL, NULL));
		fetch(out, got, sizeof got);
		for (size_t i = 0; i < items; i++) {
			size_t base = i / n * n, at = i % n;
			CHECK(got[i] == values[base + n - 1 - at] + values[base + (at + 1) % n] * 2ul);
		}
	}
	clt_code(clSetKernelArg(kernel, 1, 0, NULL), "local size 0");
	clt_code(clSetKernelArg(kernel, 1, 64, values), "local with a value");
	MUST(clReleaseMemObject(in));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

static void null_buffers(void) {
	cl_program program = clt_build("kernel void is_null(global int *p, constant int *c, global int *out) {"
		"out[0] = p == 0 ? 1 : 2; out[1] = c == 0 ? 1 : 2; }", NULL);
	cl_kernel kernel = clt_kernel(program, "is_null");
	cl_mem out = out_buffer(8), none = NULL;
	cl_int got[2];
	MUST(clSetKernelArg(kernel, 0, sizeof none, &none));
	MUST(clSetKernelArg(kernel, 1, sizeof none, NULL));
	MUST(clSetKernelArg(kernel, 2, sizeof out, &out));
	launch(kernel, 1);
	fetch(out, got, sizeof got);
	clt_say("null", "%d %d", got[0], got[1]);
	MUST(clSetKernelArg(kernel, 0, sizeof out, &out));
	MUST(clSetKernelArg(kernel, 1, sizeof out, &out));
	launch(kernel, 1);
	fetch(out, got, sizeof got);
	clt_say("not null", "%d %d", got[0], got[1]);
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

// A launch uses the values that its arguments had when the launch was enqueued.
static void set_again(void) {
	enum { rounds = 300 };
	cl_program program = clt_build("kernel void put(global uint *out, uint at, uint value) { out[at] = value; }", NULL);
	cl_kernel kernel = clt_kernel(program, "put");
	cl_mem a = out_buffer(rounds * 4), b = out_buffer(rounds * 4);
	for (cl_uint i = 0; i < rounds; i++) {
		cl_uint value = i * 7 + 1;
		cl_mem *out = i % 2 ? &a : &b;
		MUST(clSetKernelArg(kernel, 0, sizeof *out, out));
		MUST(clSetKernelArg(kernel, 1, sizeof i, &i));
		if (i % 3 == 0 || i < 3)
			MUST(clSetKernelArg(kernel, 2, sizeof value, &value));
		launch(kernel, 1);
	}
	cl_uint got[2][rounds];
	fetch(a, got[1], sizeof got[1]);
	fetch(b, got[0], sizeof got[0]);
	clt_say("content", "%016llx %016llx", (unsigned long long)clt_hash(got[0], sizeof got[0]),
		(unsigned long long)clt_hash(got[1], sizeof got[1]));
	for (cl_uint i = 3; i < rounds; i++)
		CHECK(got[i % 2][i] == i / 3 * 3 * 7 + 1 && got[(i + 1) % 2][i] == 0);
	MUST(clReleaseMemObject(a));
	MUST(clReleaseMemObject(b));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

// Everything that a launch needs may be released before it has run.
static void released_early(void) {
	static const char source[] = "kernel void put(global uint *out, global const uint *in, uint value) { *out += *in * value; }";
	cl_mem out = out_buffer(4);
	for (cl_uint i = 0; i < 8; i++) {
		cl_program program = clt_build(source, NULL);
		cl_kernel kernel = clt_kernel(program, "put");
		MUST(clReleaseProgram(program));
		cl_mem in = clt_buffer(CL_MEM_COPY_HOST_PTR, 4, &i);
		MUST(clSetKernelArg(kernel, 0, sizeof out, &out));
		MUST(clSetKernelArg(kernel, 1, sizeof in, &in));
		MUST(clSetKernelArg(kernel, 2, sizeof i, &i));
		launch(kernel, 1);
		MUST(clReleaseMemObject(in));
		MUST(clReleaseKernel(kernel));
	}
	cl_uint got = 0;
	fetch(out, &got, sizeof got);
	clt_say("sum of squares", "%u", got);
	MUST(clReleaseMemObject(out));
}

static const char *const two_source = "kernel void two(global int *out, int value) { out[get_global_id(0)] = value; }";

static void set_refused(void) {
	cl_program program = clt_build(two_source, NULL);
	cl_kernel kernel = clt_kernel(program, "two");
	cl_context elsewhere = clt_new_context();
	cl_int code;
	cl_mem out = out_buffer(64), foreign = clCreateBuffer(elsewhere, 0, 64, NULL, &code);
	MUST(code);
	cl_int value = 3;
	cl_long wide = 3;
	clt_code(clSetKernelArg(NULL, 0, sizeof out, &out), "no kernel");
	clt_code(clSetKernelArg(kernel, 2, sizeof out, &out), "index too high");
	clt_code(clSetKernelArg(kernel, 0xffffffff, sizeof out, &out), "index all ones");
	clt_code(clSetKernelArg(kernel, 0, 4, &out), "short handle");
	clt_code(clSetKernelArg(kernel, 0, 16, &out), "long handle");
	clt_code(clSetKernelArg(kernel, 1, sizeof wide, &wide), "long value");
	clt_code(clSetKernelArg(kernel, 1, 2, &value), "short value");
	clt_code(clSetKernelArg(kernel, 1, 0, &value), "value of size 0");
	clt_code(clSetKernelArg(kernel, 1, sizeof value, NULL), "no value");
	clt_code(clSetKernelArg(kernel, 0, sizeof foreign, &foreign), "buffer of another context");
	size_t items = 4;
	clt_code(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "launch after wrong values");
	MUST(clSetKernelArg(kernel, 0, sizeof out, &out));
	MUST(clSetKernelArg(kernel, 1, sizeof value, &value));
	clt_code(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "launch after right values");
	MUST(clFinish(clt_queue()));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseMemObject(foreign));
	MUST(clReleaseContext(elsewhere));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

static void unset(void) {
	cl_program program = clt_build(two_source, NULL);
	cl_kernel kernel = clt_kernel(program, "two");
	cl_mem out = out_buffer(64);
	size_t items = 4;
	clt_code(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "none set");
	MUST(clSetKernelArg(kernel, 0, sizeof out, &out));
	clt_code(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "one set");
	clt_code(clEnqueueTask(clt_queue(), kernel, 0, NULL, NULL), "task, one set");
	MUST(clFinish(clt_queue()));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

// --- launches -----------------------------------------------------------------------------------

static const char *const shape_source =
	"kernel void shape(global ulong *out) {\n"
	"  size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1),\n"
	"    z = get_global_id(2) - get_global_offset(2);\n"
	"  size_t at = (z * get_global_size(1) + y) * get_global_size(0) + x;\n"
	"  ulong ids = get_work_dim(), groups = 1;\n"
	"  for (uint d = 0; d < 4; d++) {\n"
	"    ids = ids * 31 + get_global_id(d) * 7 + get_global_size(d) * 11 + get_global_offset(d) * 13;\n"
	"    groups = groups * 31 + get_local_id(d) * 7 + get_local_size(d) * 11 + get_group_id(d) * 13 + get_num_groups(d) * 17; }\n"
	"  out[at] = ids;\n"
	"  out[at + get_global_size(0) * get_global_size(1) * get_global_size(2)] = groups; }\n";

static const struct {
	cl_uint dims;
	bool offset;
	size_t from[3], items[3], group[3];
} shapes[] = {
	{1, false, {0}, {1}, {1}},
	{1, false, {0}, {1000}, {8}},
	{1, true, {17}, {96}, {32}},
	{1, true, {(size_t)1 << 33}, {64}, {64}},
	{2, false, {0}, {8, 12}, {4, 3}},
	{2, true, {5, 1000}, {32, 2}, {1, 2}},
	{3, false, {0}, {4, 6, 10}, {2, 3, 5}},
	{3, true, {1, 2, 3}, {2, 8, 16}, {2, 2, 2}},
	{3, false, {0}, {1, 1, 64}, {1, 1, 64}},
};

static void launch_shapes(void) {
	cl_program program = clt_build(shape_source, NULL);
	cl_kernel shape = clt_kernel(program, "shape");
	enum { most = 1024 };
	cl_mem out = out_buffer(2 * most * 8);
	cl_ulong got[2 * most];
	MUST(clSetKernelArg(shape, 0, sizeof out, &out));
	for (size_t i = 0; i < COUNT(shapes); i++) {
		size_t count = 1;
		for (cl_uint d = 0; d < shapes[i].dims; d++)
			count *= shapes[i].items[d];
		for (int given = 0; given < 2; given++) {
			MUST(clEnqueueNDRangeKernel(clt_queue(), shape, shapes[i].dims, shapes[i].offset ? shapes[i].from : NULL,
				shapes[i].items, given ? shapes[i].group : NULL, 0, NULL, NULL));
			fetch(out, got, 2 * count * 8);
			clt_say("ids", "%zu %016llx", i, (unsigned long long)clt_hash(got, count * 8));
		}
		clt_say("groups", "%zu %016llx", i, (unsigned long long)clt_hash(got + count, count * 8));
	}
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(shape));
	MUST(clReleaseProgram(program));
}

static void launch_refused(void) {
	cl_program program = clt_build("kernel void free_(global int *o) { o[get_global_id(0)] = 1; }\n"
		"kernel __attribute__((reqd_work_group_size(4, 2, 1))) void fixed(global int *o) { o[get_global_id(0)] = 1; }", NULL);
	cl_kernel kernel = clt_kernel(program, "free_"), fixed = clt_kernel(program, "fixed");
	cl_mem out = out_buffer(1 << 16);
	cl_command_queue q = clt_queue();
	size_t most = 0, items[3] = {64, 2, 1}, zero[3] = {0, 0, 0}, seven[3] = {7, 1, 1}, fit[3] = {4, 2, 1};
	MUST(clSetKernelArg(kernel, 0, sizeof out, &out));
	MUST(clSetKernelArg(fixed, 0, sizeof out, &out));
	MUST(clGetDeviceInfo(clt_device(), CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof most, &most, NULL));
	size_t wide[3] = {most * 2, 1, 1};
	clt_code(clEnqueueNDRangeKernel(NULL, kernel, 1, NULL, items, NULL, 0, NULL, NULL), "no queue");
	clt_code(clEnqueueNDRangeKernel(q, kernel, 0, NULL, items, NULL, 0, NULL, NULL), "0 dimensions");
	clt_code(clEnqueueNDRangeKernel(q, kernel, 4, NULL, items, NULL, 0, NULL, NULL), "4 dimensions");
	clt_code(clEnqueueNDRangeKernel(q, kernel, 1, NULL, NULL, NULL, 0, NULL, NULL), "no global size");
	clt_code(clEnqueueNDRangeKernel(q, kernel, 1, NULL, zero, NULL, 0, NULL, NULL), "global size 0");
	clt_code(clEnqueueNDRangeKernel(q, kernel, 1, NULL, items, zero, 0, NULL, NULL), "local size 0");
	clt_code(clEnqueueNDRangeKernel(q, kernel, 1, NULL, items, seven, 0, NULL, NULL), "local size does not divide");
	clt_code(clEnqueueNDRangeKernel(q, kernel, 1, NULL, wide, wide, 0, NULL, NULL), "local size above the most");
	clt_code(clEnqueueNDRangeKernel(q, fixed, 2, NULL, items, NULL, 0, NULL, NULL), "fixed, none given");
	clt_code(clEnqueueNDRangeKernel(q, fixed, 2, NULL, items, items, 0, NULL, NULL), "fixed, another given");
	clt_code(clEnqueueNDRangeKernel(q, fixed, 2, NULL, items, fit, 0, NULL, NULL), "fixed, given");
	clt_code(clEnqueueNDRangeKernel(q, fixed, 1, NULL, items, fit, 0, NULL, NULL), "fixed, 1 dimension");
	MUST(clFinish(q));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseKernel(fixed));
	MUST(clReleaseProgram(program));
}

static void task(void) {
	cl_program program = clt_build(two_source, NULL);
	cl_kernel kernel = clt_kernel(program, "two");
	cl_mem out = out_buffer(8);
	cl_int value = 42, got[2];
	cl_event done;
	cl_command_type type = 0;
	MUST(clSetKernelArg(kernel, 0, sizeof out, &out));
	MUST(clSetKernelArg(kernel, 1, sizeof value, &value));
	MUST(clEnqueueTask(clt_queue(), kernel, 0, NULL, &done));
	fetch(out, got, sizeof got);
	CHECK(got[0] == 42 && got[1] == 0);
	MUST(clGetEventInfo(done, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
	clt_say("command", "%#x", (unsigned)type);
	MUST(clReleaseEvent(done));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

static int native_ran;

static void CL_CALLBACK native(void *args) { native_ran += **(int **)args; }

// A device either says that it cannot run the program's own functions and refuses, or runs them.
static void native_kernel(void) {
	cl_device_exec_capabilities can = 0;
	MUST(clGetDeviceInfo(clt_device(), CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL));
	CHECK(can & CL_EXEC_KERNEL);
	int one = 1, *args = &one;
	cl_int code = clEnqueueNativeKernel(clt_queue(), native, &args, sizeof args, 0, NULL, NULL, 0, NULL, NULL);
	MUST(clFinish(clt_queue()));
	if (can & CL_EXEC_NATIVE_KERNEL)
		CHECK(code == CL_SUCCESS && native_ran == 1);
	else
		CHECK(code == CL_INVALID_OPERATION && native_ran == 0);
}

// --- queries ------------------------------------------------------------------------------------

static const char *const queried_source =
	"typedef struct { int a; float b; } pair_t;\n"
	"kernel void one(global const float * restrict in, global volatile int *out, constant short4 *table,\n"
	"  local double *scratch, uint plain, const char8 vector, pair_t pair, read_only image2d_t image, sampler_t sampler,\n"
	"  write_only image3d_t volume) {}\n"
	"kernel __attribute__((reqd_work_group_size(8, 4, 2))) __attribute__((vec_type_hint(float4))) void three(global int *x) {"
	" local int room[100]; room[get_local_id(0)] = 1; x[0] = room[0]; }\n"
	"kernel void two(void) {}\n";

static void say_arg_text(cl_kernel kernel, cl_uint at, cl_kernel_arg_info name, const char *what) {
	char text[64] = "?";
	size_t bytes = 0;
	cl_int code = clGetKernelArgInfo(kernel, at, name, sizeof text, text, &bytes);
	clt_say(what, "%u %s '%s' %zu", at, clt_name(code), code == CL_SUCCESS ? text : "", code == CL_SUCCESS ? bytes : 0);
}

static void say_arg(cl_kernel kernel, cl_uint at) {
	cl_kernel_arg_address_qualifier address = 0;
	cl_kernel_arg_access_qualifier access = 0;
	cl_kernel_arg_type_qualifier type = 0;
	cl_int a = clGetKernelArgInfo(kernel, at, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL);
	cl_int b = clGetKernelArgInfo(kernel, at, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access, NULL);
	cl_int c = clGetKernelArgInfo(kernel, at, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof type, &type, NULL);
	clt_say("argument", "%u address=%s %#x access=%s %#x type=%s %#x", at, clt_name(a), address, clt_name(b), access,
		clt_name(c), (unsigned)type);
	say_arg_text(kernel, at, CL_KERNEL_ARG_TYPE_NAME, "type");
	say_arg_text(kernel, at, CL_KERNEL_ARG_NAME, "name");
}

static void arg_info(void) {
	static const char *const options[] = {"", "-cl-kernel-arg-info"};
	for (size_t i = 0; i < COUNT(options); i++) {
		clt_say("options", "'%s'", options[i]);
		cl_program program = clt_build(queried_source, options[i]);
		cl_kernel kernel = clt_kernel(program, "one");
		for (cl_uint a = 0; a < 10; a++)
			say_arg(kernel, a);
		char text[8];
		clt_code(clGetKernelArgInfo(kernel, 10, CL_KERNEL_ARG_NAME, 8, text, NULL), "index too high");
		clt_code(clGetKernelArgInfo(kernel, 0, 0x9999, 8, text, NULL), "unknown name");
		clt_code(clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_NAME, 2, text, NULL), "too short");
		clt_code(clGetKernelArgInfo(NULL, 0, CL_KERNEL_ARG_NAME, 8, text, NULL), "no kernel");
		MUST(clReleaseKernel(kernel));
		MUST(clReleaseProgram(program));
	}
}

static void say_text(cl_kernel kernel, cl_kernel_info name, const char *what) {
	char text[256] = "?";
	size_t bytes = 0;
	cl_int code = clGetKernelInfo(kernel, name, sizeof text, text, &bytes);
	clt_say(what, "%s '%s' %zu", clt_name(code), text, bytes);
}

static void kernel_info(void) {
	cl_program program = clt_build(queried_source, NULL);
	cl_kernel kernel = clt_kernel(program, "three");
	cl_uint count = 0, references = 0;
	cl_context context = NULL;
	cl_program from = NULL;
	say_text(kernel, CL_KERNEL_FUNCTION_NAME, "name");
	say_text(kernel, CL_KERNEL_ATTRIBUTES, "attributes");
	MUST(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
	MUST(clRetainKernel(kernel));
	MUST(clGetKernelInfo(kernel, CL_KERNEL_REFERENCE_COUNT, sizeof references, &references, NULL));
	MUST(clReleaseKernel(kernel));
	MUST(clGetKernelInfo(kernel, CL_KERNEL_CONTEXT, sizeof context, &context, NULL));
	MUST(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof from, &from, NULL));
	CHECK(context == clt_context() && from == program);
	clt_say("counts", "arguments=%u references=%u", count, references);
	char text[4];
	clt_code(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 4, text, NULL), "too short");
	clt_code(clGetKernelInfo(kernel, 0x9999, 4, text, NULL), "unknown name");
	clt_code(clGetKernelInfo(NULL, CL_KERNEL_NUM_ARGS, 4, text, NULL), "no kernel");
	clt_code(clRetainKernel(NULL), "retain null");
	clt_code(clReleaseKernel(NULL), "release null");
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

static void say_group_info(cl_kernel kernel, cl_device_id device, const char *name) {
	size_t most = 0, fixed[3] = {9, 9, 9}, multiple = 0, global[3] = {0};
	cl_ulong local = 0, private = 0;
	cl_int code[6] = {
		clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL),
		clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof fixed, fixed, NULL),
		clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL),
		clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof multiple, &multiple, NULL),
		clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof private, &private, NULL),
		clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_GLOBAL_WORK_SIZE, sizeof global, global, NULL),
	};
	clt_say(name, "most=%s %zu fixed=%s %zu,%zu,%zu local=%s %llu", clt_name(code[0]), most, clt_name(code[1]), fixed[0],
		fixed[1], fixed[2], clt_name(code[2]), (unsigned long long)local);
	clt_say(name, "multiple=%s %zu private=%s %llu global=%s", clt_name(code[3]), multiple, clt_name(code[4]),
		(unsigned long long)private, clt_name(code[5]));
}

static void group_info(void) {
	cl_program program = clt_build(queried_source, NULL);
	static const char *const names[] = {"one", "two", "three"};
	for (size_t i = 0; i < COUNT(names); i++) {
		cl_kernel kernel = clt_kernel(program, names[i]);
		say_group_info(kernel, clt_device(), names[i]);
		say_group_info(kernel, NULL, names[i]);
		MUST(clReleaseKernel(kernel));
	}
	cl_kernel kernel = clt_kernel(program, "one");
	MUST(clSetKernelArg(kernel, 3, 1024, NULL));
	say_group_info(kernel, clt_device(), "with local memory set");
	size_t value;
	clt_code(clGetKernelWorkGroupInfo(kernel, clt_device(), 0x9999, 8, &value, NULL), "unknown name");
	clt_code(clGetKernelWorkGroupInfo(kernel, clt_device(), CL_KERNEL_WORK_GROUP_SIZE, 4, &value, NULL), "too short");
	clt_code(clGetKernelWorkGroupInfo(NULL, clt_device(), CL_KERNEL_WORK_GROUP_SIZE, 8, &value, NULL), "no kernel");
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

static void clone(void) {
	if (clt_version() < 21)
		clt_skip("needs OpenCL 2.1");
	cl_program program = clt_build(two_source, NULL);
	cl_kernel kernel = clt_kernel(program, "two");
	cl_mem out = out_buffer(4), second = out_buffer(4);
	cl_int value = 5, got, code;
	MUST(clSetKernelArg(kernel, 0, sizeof out, &out));
	MUST(clSetKernelArg(kernel, 1, sizeof value, &value));
	cl_kernel copy = clCloneKernel(kernel, &code);
	clt_code(code, "clone");
	if (copy) {
		value = 6;
		MUST(clSetKernelArg(kernel, 1, sizeof value, &value));
		launch(copy, 1);
		fetch(out, &got, sizeof got);
		clt_say("value of the clone", "%d", got);
		MUST(clSetKernelArg(copy, 0, sizeof second, &second));
		launch(kernel, 1);
		fetch(out, &got, sizeof got);
		clt_say("value of the first", "%d", got);
		MUST(clReleaseKernel(kernel));
		launch(copy, 1);
		fetch(second, &got, sizeof got);
		clt_say("value of the clone alone", "%d", got);
		kernel = copy;
	}
	CHECK(clCloneKernel(NULL, &code) == NULL);
	clt_code(code, "clone of nothing");
	MUST(clReleaseMemObject(out));
	MUST(clReleaseMemObject(second));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

static void in_program(void) {
	cl_program program = clt_build(queried_source, NULL);
	cl_kernel kernels[4] = {NULL};
	cl_uint count = 0;
	MUST(clCreateKernelsInProgram(program, 0, NULL, &count));
	clt_say("count", "%u", count);
	clt_code(clCreateKernelsInProgram(program, 2, kernels, NULL), "room for 2");
	MUST(clCreateKernelsInProgram(program, 4, kernels, &count));
	unsigned seen = 0;
	for (cl_uint i = 0; i < count; i++) {
		char name[32] = "";
		MUST(clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
		seen |= strcmp(name, "one") == 0 ? 1u : strcmp(name, "two") == 0 ? 2u : strcmp(name, "three") == 0 ? 4u : 8u;
		MUST(clReleaseKernel(kernels[i]));
	}
	CHECK(seen == 7);
	clt_code(clCreateKernelsInProgram(NULL, 0, NULL, &count), "no program");
	MUST(clReleaseProgram(program));
	const char *source = queried_source;
	cl_int code;
	program = clCreateProgramWithSource(clt_context(), 1, &source, NULL, &code);
	MUST(code);
	clt_code(clCreateKernelsInProgram(program, 0, NULL, &count), "not built");
	MUST(clReleaseProgram(program));
}

static void create_refused(void) {
	cl_program program = clt_build(two_source, NULL);
	cl_int code = 1;
	CHECK(clCreateKernel(program, "none", &code) == NULL);
	clt_code(code, "unknown kernel");
	CHECK(clCreateKernel(program, "", &code) == NULL);
	clt_code(code, "empty name");
	CHECK(clCreateKernel(program, NULL, &code) == NULL);
	clt_code(code, "no name");
	CHECK(clCreateKernel(NULL, "two", &code) == NULL);
	clt_code(code, "no program");
	MUST(clReleaseProgram(program));
	program = clCreateProgramWithSource(clt_context(), 1, (const char **)&two_source, NULL, &code);
	MUST(code);
	CHECK(clCreateKernel(program, "two", &code) == NULL);
	clt_code(code, "not built");
	MUST(clReleaseProgram(program));
}

/* A source in the manner of OpenCV: several definitions of one kernel, of which macros select one,
 * and parameters in macros. Definitions in inactive parts have as many parameters as the active
 * one, of other types. */
static const char *macro_source =
	"#if defined OP_ADDW\n"
	"#define EXTRA , scaleT alpha, scaleT beta\n"
	"#define SOURCE global const\n"
	"#elif defined OP_MASK\n"
	"#define EXTRA , global const uchar *mask, int step\n"
	"#else\n"
	"#define EXTRA\n"
	"#endif\n"
	"#define TARGET const global int * restrict\n"
	"#undef TARGET\n"
	"#define TARGET global int * restrict\n"
	"#if defined UNARY\n"
	"kernel void KF(SOURCE int *a, int step, TARGET d EXTRA) { d[0] = a[0]; }\n"
	"#elif defined OTHER\n"
	"kernel void KF(float a, local int *b, global const int *c, sampler_t d, image2d_t e, int f) {}\n"
	"#else\n"
	"kernel void KF(SOURCE int *a, SOURCE int *b, TARGET d, int cols EXTRA)\n"
	"{ int x = get_global_id(0); if (x < cols) d[x] = convert_int(a[x] * alpha + b[x] * beta); }\n"
	"#endif\n";

static void macros(void) {
	cl_int in[16], out[16] = {0}, cols = 16;
	cl_float alpha = 2, beta = 3;
	for (int i = 0; i < 16; i++)
		in[i] = i;
	cl_program program = clt_build(macro_source, "-D OP_ADDW -D scaleT=float");
	cl_kernel kernel = clt_kernel(program, "KF");
	cl_mem a = clt_buffer(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof in, in), d = clt_buffer(CL_MEM_READ_WRITE, sizeof out, NULL);
	clt_code(clSetKernelArg(kernel, 0, sizeof a, &a), "first source");
	clt_code(clSetKernelArg(kernel, 1, sizeof a, &a), "second source");
	clt_code(clSetKernelArg(kernel, 2, sizeof d, &d), "target");
	clt_code(clSetKernelArg(kernel, 3, sizeof cols, &cols), "columns");
	clt_code(clSetKernelArg(kernel, 4, sizeof alpha, &alpha), "alpha");
	clt_code(clSetKernelArg(kernel, 5, sizeof beta, &beta), "beta");
	size_t global = 16;
	clt_code(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &global, NULL, 0, NULL, NULL), "launch");
	fetch(d, out, sizeof out);
	clt_say("last", "%d", out[15]);
	char options[128] = "";
	size_t size = 0;
	MUST(clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, &size));
	clt_say("options", "%s (%zu)", options, size);
	cl_uint address;
	clt_code(clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL), "argument info");
	MUST(clReleaseMemObject(a));
	MUST(clReleaseMemObject(d));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseProgram(program));
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"values", values},
		{"structs", structs},
		{"many", many},
		{"local_memory", local_memory},
		{"null_buffers", null_buffers},
		{"set_again", set_again},
		{"released_early", released_early},
		{"set_refused", set_refused},
		{"unset", unset},
		{"launch_shapes", launch_shapes},
		{"launch_refused", launch_refused},
		{"task", task},
		{"native_kernel", native_kernel},
		{"arg_info", arg_info},
		{"kernel_info", kernel_info},
		{"group_info", group_info},
		{"clone", clone},
		{"in_program", in_program},
		{"create_refused", create_refused},
		{"macros", macros},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
