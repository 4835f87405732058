// Threads: many of them, sharing contexts and queues, with small stacks; and the output of kernels.
#define _GNU_SOURCE
#include "work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { most_threads = 16 };

struct job {
	struct work *shared;
	cl_uint seed;
	int rounds;
	cl_int code;
};

static void run_all(int count, void *(*run)(void *), struct work *shared, int rounds, size_t stack) {
	pthread_t threads[most_threads];
	struct job jobs[most_threads];
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	if (stack)
		CHECK(pthread_attr_setstacksize(&attributes, stack) == 0);
	for (int i = 0; i < count; i++) {
		jobs[i] = (struct job){shared, (cl_uint)i * 1000, rounds, 99};
		CHECK(pthread_create(&threads[i], &attributes, run, &jobs[i]) == 0);
	}
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		if (jobs[i].code != CL_SUCCESS)
			clt_fail(__FILE__, __LINE__, "thread %d: %s", i, clt_name(jobs[i].code));
	}
	pthread_attr_destroy(&attributes);
}

static cl_int rounds_of(struct work *w, const struct job *job) {
	cl_int code = CL_SUCCESS;
	for (int i = 0; i < job->rounds && code == CL_SUCCESS; i++)
		code = work_round(w, job->seed + (cl_uint)i);
	return code;
}

static void *own_context(void *data) {
	struct job *job = data;
	job->code = work_all(job->rounds);
	return NULL;
}

static void *own_queue(void *data) {
	struct job *job = data;
	struct work w;
	job->code = work_share(&w, job->shared);
	if (job->code == CL_SUCCESS)
		job->code = rounds_of(&w, job);
	cl_int closed = work_close(&w);
	if (job->code == CL_SUCCESS)
		job->code = closed;
	return NULL;
}

// Commands of several threads on one in-order queue: each thread has its own buffer and kernel.
static void *same_queue(void *data) {
	struct job *job = data;
	struct work w;
	job->code = work_share(&w, job->shared);
	if (job->code != CL_SUCCESS)
		return NULL;
	clReleaseCommandQueue(w.queue);
	w.queue = job->shared->queue;
	clRetainCommandQueue(w.queue);
	job->code = rounds_of(&w, job);
	work_close(&w);
	return NULL;
}

static void *objects_only(void *data) {
	struct job *job = data;
	job->code = CL_SUCCESS;
	for (int i = 0; i < job->rounds && job->code == CL_SUCCESS; i++) {
		cl_mem buffer = clCreateBuffer(job->shared->context, 0, 256 + (size_t)i, NULL, &job->code);
		cl_kernel kernel = job->code == CL_SUCCESS ? clCreateKernel(job->shared->program, "advance", &job->code) : NULL;
		if (job->code != CL_SUCCESS)
			return NULL;
		job->code |= clRetainMemObject(buffer);
		job->code |= clRetainContext(job->shared->context);
		job->code |= clReleaseMemObject(buffer);
		job->code |= clReleaseKernel(kernel);
		job->code |= clReleaseMemObject(buffer);
		job->code |= clReleaseContext(job->shared->context);
	}
	return NULL;
}

static void contexts(void) {
	clt_device(); // see first_calls
	run_all(8, own_context, NULL, 15, 0);
}

static void with_shared(int count, void *(*run)(void *), int rounds, size_t stack) {
	struct work w;
	MUST(work_open(&w));
	run_all(count, run, &w, rounds, stack);
	cl_uint references = 0;
	MUST(clGetContextInfo(w.context, CL_CONTEXT_REFERENCE_COUNT, sizeof references, &references, NULL));
	MUST(work_round(&w, 5));
	MUST(work_close(&w));
}

static void shared_context(void) { with_shared(8, own_queue, 30, 0); }

static void shared_queue(void) { with_shared(8, same_queue, 30, 0); }

static void shared_objects(void) { with_shared(16, objects_only, 300, 0); }

// 64 KiB is four times the least that a thread may have. Builds are left out: compilers need more.
static void small_stack(void) { with_shared(4, own_queue, 20, 64 * 1024); }

// Threads start and end while the library is loaded; each uses it once.
static void short_lived(void) {
	struct work w;
	MUST(work_open(&w));
	for (int i = 0; i < 20; i++)
		run_all(5, own_queue, &w, 1, 0);
	MUST(work_close(&w));
}

static atomic_int together;

static void *first_call(void *data) {
	struct job *job = data;
	atomic_fetch_add(&together, 1);
	while (atomic_load(&together) < 8)
		;
	job->code = work_all(2);
	return NULL;
}

// The program's very first OpenCL calls come from eight threads at once: this case must be the
// first. PoCL 3.1 does not support that.
static void first_calls(void) {
	atomic_store(&together, 0);
	run_all(8, first_call, NULL, 0, 0);
}

// A thread that waits does not block the others.
static void *wait_finish(void *data) {
	struct job *job = data;
	job->code = clFinish(job->shared->queue);
	return NULL;
}

static void waiting_beside(void) {
	struct work w, beside;
	pthread_t thread;
	cl_int code;
	MUST(work_open(&w));
	MUST(work_share(&beside, &w));
	cl_event gate = clCreateUserEvent(w.context, &code);
	MUST(code);
	MUST(clEnqueueMarkerWithWaitList(w.queue, 1, &gate, NULL));
	struct job job = {&w, 0, 0, 99};
	CHECK(pthread_create(&thread, NULL, wait_finish, &job) == 0);
	for (cl_uint i = 0; i < 50; i++)
		MUST(work_round(&beside, i));
	MUST(clSetUserEventStatus(gate, CL_COMPLETE));
	pthread_join(thread, NULL);
	CHECK(job.code == CL_SUCCESS);
	MUST(clReleaseEvent(gate));
	MUST(work_close(&beside));
	MUST(work_close(&w));
}

// --- kernels' output ----------------------------------------------------------------------------

static void launch_named(cl_program program, const char *name, cl_uint value, size_t items) {
	cl_kernel kernel = clt_kernel(program, name);
	MUST(clSetKernelArg(kernel, 0, sizeof value, &value));
	MUST(clEnqueueNDRangeKernel(clt_queue(), kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
	MUST(clReleaseKernel(kernel));
}

static const char *const print_source =
	"kernel void count(uint n) { printf(\"kernel %u\\n\", n); }\n"
	"kernel void forms(uint n) {\n"
	"  printf(\"%d %5d|%-5d|%05d %i\\n\", -(int)n, 42, 42, 42, 7);\n"
	"  printf(\"%x %X %#x %o %ld %lu\\n\", 255, 255, 255, 8, -5000000000l, 5000000000ul);\n"
	"  printf(\"%f %.2f %e %g %8.3f\\n\", 1.5f, 2.25f, 1000.0f, 0.5f, 3.14159f);\n"
	"  printf(\"%c%c %s %%\\n\", 'o', 'k', \"words\");\n"
	"  printf(\"%v4hld %v2hlf\\n\", (int4)(1, 2, 3, 4), (float2)(1.5f, -2.5f));\n"
	"  printf(\"no line end\"); printf(\"; now\\n\"); printf(\"\\n\"); }\n"
	"kernel void lines(uint n) { for (uint i = 0; i < n; i++) printf(\"line %u of many that are here to be counted\\n\", i); }\n"
	"kernel void nothing(uint n) { if (n == 12345) printf(\"never\\n\"); }\n";

// A kernel's output is on standard output when clFinish returns, before the program's next output.
static void print_order(void) {
	cl_program program = clt_build(print_source, NULL);
	for (cl_uint i = 0; i < 10; i++) {
		printf("program before %u\n", i);
		fflush(stdout);
		launch_named(program, "count", i, 1);
		if (i % 2)
			launch_named(program, "count", 100 + i, 1);
		MUST(clFinish(clt_queue()));
		printf("program after %u\n", i);
		fflush(stdout);
	}
	MUST(clReleaseProgram(program));
}

static void print_forms(void) {
	cl_program program = clt_build(print_source, NULL);
	launch_named(program, "forms", 3, 1);
	MUST(clFinish(clt_queue()));
	launch_named(program, "nothing", 3, 1);
	MUST(clFinish(clt_queue()));
	MUST(clReleaseProgram(program));
}

static void print_many(void) {
	cl_program program = clt_build(print_source, NULL);
	launch_named(program, "lines", 2000, 1);
	MUST(clFinish(clt_queue()));
	clt_say("after", "here");
	MUST(clReleaseProgram(program));
}

// A blocking read and a wait for an event flush the output too, as the specification requires.
static void print_blocking(void) {
	cl_program program = clt_build(print_source, NULL);
	cl_mem buffer = clt_buffer(0, 64, NULL);
	char bytes[4];
	launch_named(program, "count", 7, 1);
	MUST(clEnqueueReadBuffer(clt_queue(), buffer, CL_TRUE, 0, 4, bytes, 0, NULL, NULL));
	MUST(clFinish(clt_queue()));
	clt_say("after", "read");
	MUST(clReleaseMemObject(buffer));
	MUST(clReleaseProgram(program));
}

// Output goes to the file of descriptor 1 at the time when the kernel runs, as a program that
// redirects it expects.
static void print_redirected(void) {
	cl_program program = clt_build(print_source, NULL);
	char path[4200], text[256] = "";
	snprintf(path, sizeof path, "%s/out", clt_scratch());
	FILE *file = fopen(path, "w+");
	fflush(stdout);
	int saved = dup(1);
	CHECK(file && dup2(fileno(file), 1) == 1);
	launch_named(program, "count", 55, 1);
	cl_int code = clFinish(clt_queue());
	fflush(stdout);
	CHECK(dup2(saved, 1) == 1);
	close(saved);
	MUST(code);
	rewind(file);
	size_t bytes = fread(text, 1, sizeof text - 1, file);
	fclose(file);
	clt_say("file", "%zu '%s'", bytes, text);
	MUST(clReleaseProgram(program));
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"first_calls", first_calls},
		{"contexts", contexts},
		{"shared_context", shared_context},
		{"shared_queue", shared_queue},
		{"shared_objects", shared_objects},
		{"small_stack", small_stack},
		{"short_lived", short_lived},
		{"waiting_beside", waiting_beside},
		{"print_order", print_order},
		{"print_forms", print_forms},
		{"print_many", print_many},
		{"print_blocking", print_blocking},
		{"print_redirected", print_redirected},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
