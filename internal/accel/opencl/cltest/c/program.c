// Programs: sources in pieces, build options, headers of the program's own machine, logs, binaries,
// compile and link.
#define _GNU_SOURCE
#include "clt.h"

#include <limits.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static cl_program from_sources(cl_uint count, const char **sources, const size_t *lengths) {
	cl_int code;
	cl_program program = clCreateProgramWithSource(clt_context(), count, sources, lengths, &code);
	MUST(code);
	return program;
}

static cl_program from_source(const char *source) { return from_sources(1, &source, NULL); }

// answer_in runs the kernel "answer(global int *)" of a built program and returns its result, or
// -1.
static cl_int answer_in(cl_context context, cl_program program) {
	cl_command_queue queue = clt_new_queue(context, 0);
	cl_kernel kernel = clt_kernel(program, "answer");
	cl_int code, value = -1;
	cl_mem out = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof value, &value, &code);
	MUST(code);
	size_t one = 1;
	MUST(clSetKernelArg(kernel, 0, sizeof out, &out));
	MUST(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
	MUST(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
	MUST(clReleaseMemObject(out));
	MUST(clReleaseKernel(kernel));
	MUST(clReleaseCommandQueue(queue));
	return value;
}

static cl_int answer(cl_program program) { return answer_in(clt_context(), program); }

static void say_build(const char *what, const char *source, const char *options) {
	cl_program program = from_source(source);
	cl_int code = clBuildProgram(program, 0, NULL, options, NULL, NULL);
	clt_say(what, "%s %d", clt_name(code), code == CL_SUCCESS ? answer(program) : 0);
	MUST(clReleaseProgram(program));
}

// --- sources ------------------------------------------------------------------------------------

static void pieces(void) {
	const char *whole[] = {"kernel void answer(global int *o) {", " *o = ", "41", " + 1;", "\n}\n"};
	cl_program program = from_sources(COUNT(whole), whole, NULL);
	MUST(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
	clt_say("no lengths", "%d", answer(program));
	MUST(clReleaseProgram(program));
	const char *cut[] = {"kernel void answer(global int *o) { *o = 7???", "000; }", "}}}}", "\n"};
	size_t lengths[] = {41, 2, 1, 0};
	lengths[0] = strlen(cut[0]) - 3;
	lengths[1] = 4; // "000;"
	program = from_sources(COUNT(cut), cut, lengths);
	MUST(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
	clt_say("lengths", "%d", answer(program));
	size_t bytes = 0;
	char text[256];
	MUST(clGetProgramInfo(program, CL_PROGRAM_SOURCE, sizeof text, text, &bytes));
	clt_say("source", "%zu '%s'", bytes, text);
	MUST(clReleaseProgram(program));
}

static void pieces_refused(void) {
	const char *with_null[] = {"kernel void k(void) {}", NULL};
	const char *source = "kernel void k(void) {}";
	cl_int code;
	CHECK(clCreateProgramWithSource(clt_context(), 2, with_null, NULL, &code) == NULL);
	clt_code(code, "null piece");
	CHECK(clCreateProgramWithSource(clt_context(), 0, &source, NULL, &code) == NULL);
	clt_code(code, "no pieces");
	CHECK(clCreateProgramWithSource(NULL, 1, &source, NULL, &code) == NULL);
	clt_code(code, "no context");
}

// A source of several MiB, most of it a comment.
static void large(void) {
	size_t bytes = 5 << 20;
	char *source = malloc(bytes);
	memset(source, ' ', bytes);
	memcpy(source, "/*", 2);
	static const char tail[] = "*/ kernel void answer(global int *o) { *o = 99; }";
	memcpy(source + bytes - sizeof tail, tail, sizeof tail);
	source[bytes - 1] = 0;
	say_build("answer", source, NULL);
	free(source);
}

// --- options ------------------------------------------------------------------------------------

static void options(void) {
	static const char source[] =
		"#ifndef A\n#define A 1\n#endif\n#ifndef B\n#define B 2\n#endif\n#ifdef __FAST_RELAXED_MATH__\n#define F 1000\n#else\n"
		"#define F 0\n#endif\nkernel void answer(global int *o) { *o = A * 10 + B + F; }";
	static const char *const all[] = {NULL, "", " ", "-DA=3", "-D A=3", "-DA=3 -DB=4", "-D A -DB=\"(2 + 3)\"", "-DA=3 -cl-fast-relaxed-math",
		"-cl-std=CL1.2 -DA=5", "-w -Werror -DA=6", "-cl-opt-disable -cl-mad-enable -DA=7", "-cl-no-signed-zeros  -DA=8 ",
		"-unknown-option", "-DA=", "-cl-std=CL9.9"};
	for (size_t i = 0; i < COUNT(all); i++)
		say_build(all[i] ? all[i] : "(null)", source, all[i]);
}

static void say_build_info(cl_program program, const char *what, bool log_too) {
	cl_build_status status = 99;
	cl_program_binary_type type = 99;
	char text[512] = "?";
	size_t bytes = 0;
	MUST(clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
	MUST(clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
	MUST(clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_OPTIONS, sizeof text, text, NULL));
	clt_say(what, "status=%d type=%u options='%s'", status, type, text);
	cl_int code = clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
	clt_say(what, "log=%s %s", clt_name(code), bytes > 1 ? "some" : "none");
	if (log_too) {
		char *log = malloc(bytes);
		MUST(clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_LOG, bytes, log, NULL));
		CHECK(strlen(log) + 1 == bytes);
		clt_say("log names the wrong word", "%d", strstr(log, "no_such_name") != NULL);
		clt_code(clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_LOG, bytes - 1, log, NULL), "log, too short");
		free(log);
	}
}

static void build_info(void) {
	cl_program program = from_source("kernel void answer(global int *o) { *o = 5; }");
	say_build_info(program, "new", false);
	MUST(clBuildProgram(program, 0, NULL, "-DX=1", NULL, NULL));
	say_build_info(program, "built", false);
	MUST(clBuildProgram(program, 0, NULL, "-DX=2", NULL, NULL));
	say_build_info(program, "built again", false);
	cl_device_id device = clt_device();
	clt_code(clBuildProgram(program, 1, &device, NULL, NULL, NULL), "for the device");
	clt_code(clBuildProgram(program, 1, NULL, NULL, NULL, NULL), "count without list");
	clt_code(clBuildProgram(program, 0, &device, NULL, NULL, NULL), "list without count");
	clt_code(clBuildProgram(program, 0, NULL, NULL, NULL, program), "data without callback");
	clt_code(clBuildProgram(NULL, 0, NULL, NULL, NULL, NULL), "no program");
	cl_ulong value;
	clt_code(clGetProgramBuildInfo(program, device, 0x9999, 8, &value, NULL), "info of unknown name");
	MUST(clReleaseProgram(program));
}

static void build_while_kernels(void) {
	cl_program program = clt_build("kernel void answer(global int *o) { *o = 5; }", NULL);
	cl_kernel kernel = clt_kernel(program, "answer");
	clt_code(clBuildProgram(program, 0, NULL, "-DX", NULL, NULL), "with a kernel");
	MUST(clReleaseKernel(kernel));
	clt_code(clBuildProgram(program, 0, NULL, "-DX", NULL, NULL), "without");
	MUST(clReleaseProgram(program));
}

static void build_error(void) {
	cl_program program = from_source("kernel void answer(global int *o) { *o = no_such_name; }");
	clt_code(clBuildProgram(program, 0, NULL, "-DY", NULL, NULL), "build");
	say_build_info(program, "failed", true);
	cl_int code;
	CHECK(clCreateKernel(program, "answer", &code) == NULL);
	clt_code(code, "kernel of it");
	size_t count = 9;
	clt_code(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL), "number of kernels");
	MUST(clReleaseProgram(program));
	program = from_source("#error some_words_of_mine\n");
	clt_code(clBuildProgram(program, 0, NULL, NULL, NULL, NULL), "error directive");
	char log[8192] = "";
	MUST(clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
	clt_say("log has the words", "%d", strstr(log, "some_words_of_mine") != NULL);
	MUST(clReleaseProgram(program));
}

static void build_warning(void) {
	cl_program program = from_source("#warning mind_the_gap\nkernel void answer(global int *o) { *o = 5; }");
	clt_code(clBuildProgram(program, 0, NULL, NULL, NULL, NULL), "build");
	char log[8192] = "";
	MUST(clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
	clt_say("log has the words", "%d", strstr(log, "mind_the_gap") != NULL);
	MUST(clReleaseProgram(program));
}

static atomic_int built;
static cl_program built_program;

static void CL_CALLBACK note_built(cl_program program, void *data) {
	CHECK(program == built_program && data == &built);
	cl_build_status status = 99;
	CHECK(clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL) == CL_SUCCESS);
	atomic_store(&built, status == CL_BUILD_SUCCESS ? 1 : 2);
}

static void callback_one(const char *what, const char *source) {
	atomic_store(&built, 0);
	built_program = from_source(source);
	cl_int code = clBuildProgram(built_program, 0, NULL, NULL, note_built, &built);
	CHECK(code == CL_SUCCESS || code == CL_BUILD_PROGRAM_FAILURE); // asynchronous builds answer success at once
	uint64_t until = clt_now() + 20000000000u;
	while (atomic_load(&built) == 0 && clt_now() < until)
		;
	clt_say(what, "%d", atomic_load(&built));
	MUST(clReleaseProgram(built_program));
}

static void build_callback(void) {
	callback_one("good", "kernel void answer(global int *o) { *o = 5; }");
	callback_one("bad", "kernel void answer(global int *o) { *o = ; }");
}

// --- headers ------------------------------------------------------------------------------------

static const char *under(const char *path) {
	static char full[4][PATH_MAX];
	static int turn;
	char *at = full[turn++ % 4];
	snprintf(at, PATH_MAX, "%s/%s", clt_scratch(), path);
	return at;
}

static void make_headers(void) {
	clt_write(under("plain/one.h"), "#define ONE 1\n");
	clt_write(under("plain/deep/two.h"), "#include \"three.h\"\n#define TWO (2 + THREE)\n");
	clt_write(under("plain/deep/three.h"), "#include \"../one.h\"\n#define THREE (30 + ONE)\n");
	clt_write(under("second/one.h"), "#define ONE 100\n");
	clt_write(under("second/only.h"), "#pragma once\n#include <one.h>\nint helper(int x) { return x * ONE; }\n");
	clt_write(under("with space/spaced.h"), "#define SPACED 77\n");
	clt_write(under("plain/guard.h"), "#ifndef G\n#define G\n#include \"guard.h\"\n#define GUARD 9\n#endif\n");
	clt_write(under("plain/computed.h"), "#define COMPUTED 55\n");
}

static void say_include(const char *what, const char *source, const char *format, ...) __attribute__((format(printf, 3, 4)));

#include <stdarg.h>

static void say_include(const char *what, const char *source, const char *format, ...) {
	char options_text[4 * PATH_MAX];
	va_list args;
	va_start(args, format);
	vsnprintf(options_text, sizeof options_text, format, args);
	va_end(args);
	say_build(what, source, options_text);
}

#define ANSWER(value) "\nkernel void answer(global int *o) { *o = " value "; }\n"

static void include_forms(void) {
	make_headers();
	const char *plain = under("plain"), *second = under("second");
	say_include("quotes", "#include \"one.h\"" ANSWER("ONE"), "-I%s", plain);
	say_include("angles", "#include <one.h>" ANSWER("ONE"), "-I%s", plain);
	say_include("option with a space", "#include <one.h>" ANSWER("ONE"), "-I %s", plain);
	say_include("folder below", "#include \"deep/two.h\"" ANSWER("TWO"), "-I%s", plain);
	say_include("folder above", "#include \"../second/one.h\"" ANSWER("ONE"), "-I%s", plain);
	say_include("first folder wins", "#include <one.h>" ANSWER("ONE"), "-I%s -I %s", second, plain);
	say_include("first folder wins too", "#include <one.h>" ANSWER("ONE"), "-I%s -I %s", plain, second);
	say_include("second folder", "#include \"only.h\"\n#include \"only.h\"" ANSWER("helper(3)"), "-I%s -I %s", plain, second);
	say_include("with a define", "#include HEADER" ANSWER("ONE + X"), "-DX=5 -I%s -DHEADER=\\\"one.h\\\"", plain);
	say_include("guarded", "#include \"guard.h\"\n#include <guard.h>" ANSWER("GUARD"), "-I%s", plain);
	say_include("trailing slash", "#include \"one.h\"" ANSWER("ONE"), "-I%s/", plain);
	say_include("missing", "#include \"none.h\"" ANSWER("1"), "-I%s", plain);
	say_include("missing folder", ANSWER("1"), "-I%s/none", plain);
	say_include("no folder", "#include \"one.h\"" ANSWER("ONE"), "%s", "");
	say_include("not taken", "#if 0\n#include \"none.h\"\n#endif" ANSWER("4"), "-I%s", plain);
	say_include("in a comment", "/*\n#include \"none.h\"\n*/\n// #include <none.h>" ANSWER("5"), "-I%s", plain);
	say_include("computed name", "#define NAME <computed.h>\n#include NAME" ANSWER("COMPUTED"), "-I%s", plain);
	say_include("odd spacing", "  #  include   \"one.h\"  // one" ANSWER("ONE"), "-I%s", plain);
}

// PoCL 3.1 splits the options at each space, in quotes or not, so none of these works there.
static void include_spaced(void) {
	make_headers();
	const char *spaced = under("with space");
	say_include("double quotes", "#include <spaced.h>" ANSWER("SPACED"), "-I\"%s\"", spaced);
	say_include("double quotes after a space", "#include <spaced.h>" ANSWER("SPACED"), "-I \"%s\"", spaced);
	say_include("quotes around all", "#include <spaced.h>" ANSWER("SPACED"), "\"-I%s\"", spaced);
	say_include("backslash", "#include <spaced.h>" ANSWER("SPACED"), "-I%s/with\\ space", clt_scratch());
}

static void include_absolute(void) {
	make_headers();
	char source[PATH_MAX + 256];
	snprintf(source, sizeof source, "#include \"%s\"" ANSWER("ONE"), under("plain/one.h"));
	say_build("absolute name", source, NULL);
}

// PoCL searches the working directory, and searches it first.
static void include_relative(void) {
	make_headers();
	char before[PATH_MAX];
	CHECK(getcwd(before, sizeof before) != NULL && chdir(clt_scratch()) == 0);
	say_build("folder", "#include <one.h>" ANSWER("ONE"), "-Iplain");
	say_build("dot folder", "#include <one.h>" ANSWER("ONE"), "-I ./second");
	say_build("dot", "#include <plain/one.h>" ANSWER("ONE"), "-I.");
	say_build("above", "#include <one.h>" ANSWER("ONE"), "-Isecond/../plain");
	say_build("nothing", "#include \"plain/one.h\"" ANSWER("ONE"), NULL);
	CHECK(chdir("plain") == 0);
	say_build("after chdir", "#include <one.h>" ANSWER("ONE"), "-I../second");
	CHECK(chdir(before) == 0);
}

// A build sees a header as it is at that time, also when it has changed since the last build.
static void include_changed(void) {
	clt_write(under("change/value.h"), "#define VALUE 1\n");
	char options_text[PATH_MAX];
	snprintf(options_text, sizeof options_text, "-I%s", under("change"));
	const char *source = "#include \"value.h\"" ANSWER("VALUE");
	cl_program program = from_source(source);
	MUST(clBuildProgram(program, 0, NULL, options_text, NULL, NULL));
	clt_say("first", "%d", answer(program));
	clt_write(under("change/value.h"), "#define VALUE 2\n");
	MUST(clBuildProgram(program, 0, NULL, options_text, NULL, NULL));
	clt_say("same program", "%d", answer(program));
	MUST(clReleaseProgram(program));
	say_build("new program", source, options_text);
	CHECK(unlink(under("change/value.h")) == 0);
	say_build("removed", source, options_text);
}

// --- queries ------------------------------------------------------------------------------------

static void info(void) {
	const char *source = "kernel void b(void) {}\nkernel void a(global int *x) { *x = 1; }\n";
	cl_program program = from_source(source);
	cl_uint count = 0, devices = 0;
	size_t kernels = 0, bytes = 0;
	char text[256] = "";
	cl_device_id device = NULL;
	cl_context context = NULL;
	MUST(clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof count, &count, NULL));
	MUST(clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof devices, &devices, NULL));
	MUST(clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof device, &device, &bytes));
	MUST(clGetProgramInfo(program, CL_PROGRAM_CONTEXT, sizeof context, &context, NULL));
	CHECK(device == clt_device() && context == clt_context() && bytes == sizeof device);
	clt_say("counts", "references=%u devices=%u", count, devices);
	clt_code(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof kernels, &kernels, NULL), "kernels before");
	clt_code(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof text, text, NULL), "names before");
	size_t size = 77;
	clt_code(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL), "binary before");
	MUST(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
	MUST(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof kernels, &kernels, NULL));
	MUST(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof text, text, &bytes));
	clt_say("kernels", "%zu '%s' %zu", kernels, text, bytes);
	MUST(clGetProgramInfo(program, CL_PROGRAM_SOURCE, sizeof text, text, &bytes));
	CHECK(strcmp(text, source) == 0 && bytes == strlen(source) + 1);
	clt_code(clGetProgramInfo(program, CL_PROGRAM_SOURCE, 3, text, NULL), "too short");
	clt_code(clGetProgramInfo(program, 0x9999, sizeof text, text, NULL), "unknown name");
	clt_code(clGetProgramInfo(NULL, CL_PROGRAM_SOURCE, sizeof text, text, NULL), "no program");
	MUST(clRetainProgram(program));
	MUST(clReleaseProgram(program));
	MUST(clReleaseProgram(program));
	clt_code(clRetainProgram(NULL), "retain null");
	clt_code(clReleaseProgram(NULL), "release null");
}

static void intermediate(void) {
	if (clt_version() < 21)
		clt_skip("needs OpenCL 2.1");
	static const unsigned char words[] = {3, 2, 0x23, 7, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
	cl_int code;
	char versions[256] = "";
	MUST(clGetDeviceInfo(clt_device(), CL_DEVICE_IL_VERSION, sizeof versions, versions, NULL));
	clt_say("versions", "'%s'", versions);
	cl_program program = clCreateProgramWithIL(clt_context(), words, sizeof words, &code);
	clt_code(code, "create");
	if (program)
		clReleaseProgram(program);
	CHECK(clCreateProgramWithIL(clt_context(), NULL, 0, &code) == NULL);
	clt_code(code, "nothing");
	program = clt_build("kernel void k(void) {}", NULL);
	size_t bytes = 77;
	clt_code(clGetProgramInfo(program, CL_PROGRAM_IL, 0, NULL, &bytes), "query");
	clt_say("bytes", "%zu", bytes);
	cl_uint value = 1;
	clt_code(clSetProgramSpecializationConstant(program, 0, sizeof value, &value), "constant");
	clt_code(clSetProgramReleaseCallback(program, NULL, NULL), "release callback");
	MUST(clReleaseProgram(program));
}

static void built_in(void) {
	cl_int code;
	cl_device_id device = clt_device();
	CHECK(clCreateProgramWithBuiltInKernels(clt_context(), 1, &device, "no_such_kernel", &code) == NULL);
	clt_code(code, "unknown");
	CHECK(clCreateProgramWithBuiltInKernels(clt_context(), 1, &device, NULL, &code) == NULL);
	clt_code(code, "null");
	clt_code(clUnloadCompiler(), "unload");
	clt_code(clUnloadPlatformCompiler(clt_platform()), "unload for the platform");
	say_build("build after", "kernel void answer(global int *o) { *o = 3; }", NULL);
}

// --- binaries -----------------------------------------------------------------------------------

static unsigned char *binary_of(cl_program program, size_t *bytes) {
	MUST(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof *bytes, bytes, NULL));
	unsigned char *binary = malloc(*bytes + 1);
	binary[*bytes] = 0xee;
	MUST(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
	CHECK(binary[*bytes] == 0xee);
	return binary;
}

static cl_program from_binary(cl_context context, const unsigned char *binary, size_t bytes) {
	cl_device_id device = clt_device();
	cl_int code, status = 99;
	cl_program program = clCreateProgramWithBinary(context, 1, &device, &bytes, &binary, &status, &code);
	CHECK(code == CL_SUCCESS && status == CL_SUCCESS);
	MUST(code);
	return program;
}

static void binaries(void) {
	cl_program program = clt_build("kernel void answer(global int *o) { *o = 1234; }", "-DZ=1");
	size_t bytes = 0;
	unsigned char *binary = binary_of(program, &bytes);
	clt_say("has bytes", "%d", bytes > 0);
	CHECK(answer(program) == 1234);
	MUST(clReleaseProgram(program));
	cl_context elsewhere = clt_new_context();
	program = from_binary(elsewhere, binary, bytes);
	cl_int code;
	cl_kernel early = clCreateKernel(program, "answer", &code);
	clt_code(code, "kernel before build");
	if (early)
		MUST(clReleaseKernel(early));
	say_build_info(program, "new", false);
	MUST(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
	say_build_info(program, "built", false);
	clt_say("answer", "%d", answer_in(elsewhere, program));
	size_t source = 77;
	MUST(clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &source));
	clt_say("bytes of source", "%zu", source);
	size_t again_bytes = 0;
	unsigned char *again = binary_of(program, &again_bytes);
	clt_say("same binary", "%d", again_bytes == bytes && memcmp(again, binary, bytes) == 0);
	MUST(clReleaseProgram(program));
	MUST(clReleaseContext(elsewhere));
	free(again);
	free(binary);
}

static void binaries_refused(void) {
	static const unsigned char wrong[] = "this is no binary";
	const unsigned char *at = wrong, *none = NULL;
	cl_device_id device = clt_device();
	size_t bytes = sizeof wrong, zero = 0;
	cl_int code = 9, status = 9;
	cl_program program = clCreateProgramWithBinary(clt_context(), 1, &device, &bytes, &at, &status, &code);
	clt_say("wrong bytes", "%s %s", clt_name(code), clt_name(status));
	if (program)
		clReleaseProgram(program);
	status = 9;
	program = clCreateProgramWithBinary(clt_context(), 1, &device, &zero, &at, &status, &code);
	clt_say("length 0", "%s %s", clt_name(code), clt_name(status));
	program = clCreateProgramWithBinary(clt_context(), 1, &device, &bytes, &none, NULL, &code);
	clt_code(code, "null binary");
	program = clCreateProgramWithBinary(clt_context(), 0, &device, &bytes, &at, NULL, &code);
	clt_code(code, "no devices");
	program = clCreateProgramWithBinary(clt_context(), 1, NULL, &bytes, &at, NULL, &code);
	clt_code(code, "null devices");
	program = clCreateProgramWithBinary(NULL, 1, &device, &bytes, &at, NULL, &code);
	clt_code(code, "no context");
}

// --- compile and link ---------------------------------------------------------------------------

static const char *const caller = "#include \"lib/helper.h\"\nkernel void answer(global int *o) { *o = helper(20) + BASE; }\n";
static const char *const helper_source = "int helper(int x) { return x * 2 + EXTRA; }\n";

static void compile_link(void) {
	cl_program main_part = from_source(caller), helper = from_source(helper_source);
	cl_program header = from_source("#include \"base.h\"\nint helper(int x);\n"), base = from_source("#define BASE 5\n");
	cl_program headers[] = {header, base};
	const char *names[] = {"lib/helper.h", "base.h"};
	cl_int code;
	MUST(clCompileProgram(main_part, 0, NULL, "", 2, headers, names, NULL, NULL));
	MUST(clCompileProgram(helper, 0, NULL, "-DEXTRA=3", 0, NULL, NULL, NULL, NULL));
	say_build_info(main_part, "compiled", false);
	CHECK(clCreateKernel(main_part, "answer", &code) == NULL);
	clt_code(code, "kernel of compiled");
	cl_program parts[] = {main_part, helper};
	cl_program linked = clLinkProgram(clt_context(), 0, NULL, NULL, 2, parts, NULL, NULL, &code);
	clt_code(code, "link");
	if (linked) {
		say_build_info(linked, "linked", false);
		clt_say("answer", "%d", answer(linked));
		MUST(clReleaseProgram(linked));
	}
	cl_program library = clLinkProgram(clt_context(), 0, NULL, "-create-library", 1, &helper, NULL, NULL, &code);
	clt_code(code, "library");
	if (library) {
		say_build_info(library, "library", false);
		parts[1] = library;
		linked = clLinkProgram(clt_context(), 0, NULL, "", 2, parts, NULL, NULL, &code);
		clt_code(code, "link with library");
		clt_say("answer", "%d", linked ? answer(linked) : 0);
		if (linked)
			MUST(clReleaseProgram(linked));
		MUST(clReleaseProgram(library));
	}
	cl_program all[] = {main_part, helper, header, base};
	for (size_t i = 0; i < COUNT(all); i++)
		MUST(clReleaseProgram(all[i]));
}

static void compile_folder(void) {
	make_headers();
	char options_text[PATH_MAX];
	snprintf(options_text, sizeof options_text, "-I%s", under("plain"));
	cl_program program = from_source("#include <deep/two.h>" ANSWER("TWO"));
	cl_int code = clCompileProgram(program, 0, NULL, options_text, 0, NULL, NULL, NULL, NULL);
	clt_code(code, "compile");
	cl_program linked = clLinkProgram(clt_context(), 0, NULL, NULL, 1, &program, NULL, NULL, &code);
	clt_code(code, "link");
	clt_say("answer", "%d", linked ? answer(linked) : 0);
	if (linked)
		MUST(clReleaseProgram(linked));
	MUST(clReleaseProgram(program));
}

static void link_refused(void) {
	cl_program plain = from_source("int missing(int x);\nkernel void answer(global int *o) { *o = missing(1); }");
	cl_int code;
	CHECK(clLinkProgram(clt_context(), 0, NULL, NULL, 1, &plain, NULL, NULL, &code) == NULL);
	clt_code(code, "not compiled");
	CHECK(clLinkProgram(clt_context(), 0, NULL, NULL, 0, NULL, NULL, NULL, &code) == NULL);
	clt_code(code, "no programs");
	CHECK(clLinkProgram(NULL, 0, NULL, NULL, 1, &plain, NULL, NULL, &code) == NULL);
	clt_code(code, "no context");
	cl_program broken = from_source("kernel void k( {}");
	clt_code(clCompileProgram(broken, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL), "compile error");
	clt_code(clCompileProgram(NULL, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL), "no program");
	say_build_info(broken, "broken", false);
	MUST(clReleaseProgram(broken));
	MUST(clReleaseProgram(plain));
}

/* Programs that choose their source at run time also build empty ones. */
static void empty_source(void) {
	static const char *const texts[] = {"", "\n", "  ", "// nothing"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		cl_int code;
		const char *text = texts[i];
		cl_program program = clCreateProgramWithSource(clt_context(), 1, &text, NULL, &code);
		clt_code(code, "create %zu", i);
		if (!program)
			continue;
		clt_code(clBuildProgram(program, 0, NULL, NULL, NULL, NULL), "build %zu", i);
		size_t size = 0;
		MUST(clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &size));
		clt_say("size of the source", "%zu", size);
		cl_uint count = 7;
		clt_code(clCreateKernelsInProgram(program, 0, NULL, &count), "kernels %zu", i);
		MUST(clReleaseProgram(program));
	}
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"pieces", pieces},
		{"pieces_refused", pieces_refused},
		{"large", large},
		{"options", options},
		{"build_info", build_info},
		{"build_while_kernels", build_while_kernels},
		{"build_error", build_error},
		{"build_warning", build_warning},
		{"build_callback", build_callback},
		{"include_forms", include_forms},
		{"include_spaced", include_spaced},
		{"include_absolute", include_absolute},
		{"include_relative", include_relative},
		{"include_changed", include_changed},
		{"info", info},
		{"intermediate", intermediate},
		{"built_in", built_in},
		{"binaries", binaries},
		{"binaries_refused", binaries_refused},
		{"compile_link", compile_link},
		{"compile_folder", compile_folder},
		{"link_refused", link_refused},
		{"empty_source", empty_source},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
