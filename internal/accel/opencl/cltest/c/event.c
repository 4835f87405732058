// Events: wait lists, user events, callbacks, markers and barriers, failures that propagate,
// profiling, queues.
#define _GNU_SOURCE
#include "clt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define BOTH (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE)

enum { size = 4096, patience_s = 10 };

static unsigned char host[size], other[size];

static cl_int status_of(cl_event event) {
	cl_int status = 99;
	MUST(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
	return status;
}

static cl_event user_event(void) {
	cl_int code;
	cl_event event = clCreateUserEvent(clt_context(), &code);
	MUST(code);
	return event;
}

// await polls an atomic until it has the value, or until patience_s seconds have passed.
static bool await(atomic_int *value, int wanted) {
	uint64_t until = clt_now() + patience_s * 1000000000ull;
	while (atomic_load(value) != wanted)
		if (clt_now() > until)
			return false;
	return true;
}

// poll_until_ended polls the command's state, as many programs do, until the command has ended.
static cl_int poll_until_ended(cl_event event) {
	uint64_t until = clt_now() + patience_s * 1000000000ull;
	cl_int last = CL_QUEUED, now;
	while ((now = status_of(event)) > CL_COMPLETE) {
		CHECK(now <= last); // a command never goes back
		last = now;
		if (clt_now() > until)
			return 99;
	}
	return now;
}

static cl_kernel add_kernel(void) {
	static cl_kernel kernel;
	if (!kernel)
		kernel = clt_kernel(clt_build("kernel void add(global uint *at, uint value) { at[get_global_id(0)] += value; }\n", NULL),
			"add");
	return kernel;
}

static void launch_add(cl_command_queue queue, cl_mem at, cl_uint value, cl_uint waits, const cl_event *list, cl_event *done) {
	cl_kernel kernel = add_kernel();
	size_t items = size / 4;
	MUST(clSetKernelArg(kernel, 0, sizeof at, &at));
	MUST(clSetKernelArg(kernel, 1, sizeof value, &value));
	MUST(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, waits, list, done));
}

static cl_mem zeros(void) {
	memset(host, 0, size);
	return clt_buffer(CL_MEM_COPY_HOST_PTR, size, host);
}

static cl_uint first_word(cl_mem at) {
	cl_uint value = 0;
	MUST(clEnqueueReadBuffer(clt_queue(), at, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
	return value;
}

// --- order --------------------------------------------------------------------------------------

// A chain of commands over several queues is ordered by its events alone.
static void chain(void) {
	cl_command_queue queues[4];
	for (size_t i = 0; i < 4; i++)
		queues[i] = clt_new_queue(clt_context(), i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
	cl_mem at = zeros();
	cl_event last = NULL;
	enum { rounds = 200 };
	for (cl_uint i = 0; i < rounds; i++) {
		cl_event done;
		cl_uint value = i;
		if (i % 5 == 4) {
			MUST(clEnqueueCopyBuffer(queues[i % 4], at, at, 0, size / 2, size / 2, 1, &last, &done));
		} else if (i % 5 == 3) {
			MUST(clEnqueueFillBuffer(queues[i % 4], at, &value, 4, 0, 4, 1, &last, &done));
		} else {
			launch_add(queues[i % 4], at, i + 1, last != NULL, last ? &last : NULL, &done);
		}
		MUST(clFlush(queues[i % 4]));
		if (last)
			MUST(clReleaseEvent(last));
		last = done;
	}
	MUST(clWaitForEvents(1, &last));
	MUST(clReleaseEvent(last));
	MUST(clEnqueueReadBuffer(clt_queue(), at, CL_TRUE, 0, size, other, 0, NULL, NULL));
	clt_say("content", "%016llx", (unsigned long long)clt_hash(other, size));
	for (size_t i = 0; i < 4; i++)
		MUST(clReleaseCommandQueue(queues[i]));
	MUST(clReleaseMemObject(at));
}

// Many commands wait for one, and one waits for many.
static void fan(void) {
	enum { wide = 64 };
	cl_command_queue queue = clt_new_queue(clt_context(), CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_mem parts[wide];
	cl_event done[wide], joined;
	for (cl_uint i = 0; i < wide; i++) {
		parts[i] = zeros();
		launch_add(queue, parts[i], i, 0, NULL, &done[i]);
	}
	MUST(clEnqueueMarkerWithWaitList(queue, wide, done, &joined));
	cl_mem sum = zeros();
	launch_add(queue, sum, 1, 1, &joined, NULL);
	MUST(clFinish(queue));
	CHECK(first_word(sum) == 1);
	for (cl_uint i = 0; i < wide; i++) {
		CHECK(status_of(done[i]) == CL_COMPLETE && first_word(parts[i]) == i);
		MUST(clReleaseEvent(done[i]));
		MUST(clReleaseMemObject(parts[i]));
	}
	MUST(clReleaseEvent(joined));
	MUST(clReleaseMemObject(sum));
	MUST(clReleaseCommandQueue(queue));
}

static void markers(void) {
	cl_command_queue queue = clt_new_queue(clt_context(), CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_mem at = zeros();
	cl_event gate = user_event(), marker, barrier, old_marker;
	MUST(clEnqueueFillBuffer(queue, at, "\1", 1, 0, size, 1, &gate, NULL));
	MUST(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
	MUST(clEnqueueBarrierWithWaitList(queue, 0, NULL, &barrier));
	launch_add(queue, at, 1, 0, NULL, NULL);
	MUST(clEnqueueMarker(queue, &old_marker));
	MUST(clFlush(queue));
	CHECK(status_of(marker) > CL_COMPLETE && status_of(barrier) > CL_COMPLETE && status_of(old_marker) > CL_COMPLETE);
	MUST(clSetUserEventStatus(gate, CL_COMPLETE));
	MUST(clWaitForEvents(1, &old_marker));
	CHECK(status_of(marker) == CL_COMPLETE && status_of(barrier) == CL_COMPLETE);
	MUST(clFinish(queue));
	clt_say("value", "%#x", first_word(at));
	clt_code(clEnqueueMarker(queue, NULL), "marker without event");
	clt_code(clEnqueueBarrier(queue), "old barrier");
	clt_code(clEnqueueMarkerWithWaitList(NULL, 0, NULL, NULL), "no queue");
	clt_code(clEnqueueMarkerWithWaitList(queue, 1, NULL, NULL), "count without list");
	clt_code(clEnqueueBarrierWithWaitList(queue, 0, &marker, NULL), "list without count");
	MUST(clFinish(queue));
	cl_event all[] = {gate, marker, barrier, old_marker};
	for (size_t i = 0; i < COUNT(all); i++)
		MUST(clReleaseEvent(all[i]));
	MUST(clReleaseMemObject(at));
	MUST(clReleaseCommandQueue(queue));
}

// PoCL 3.1 aborts here.
static void old_wait(void) {
	cl_event gate = user_event();
	cl_mem at = zeros();
	clt_code(clEnqueueWaitForEvents(clt_queue(), 1, &gate), "one");
	launch_add(clt_queue(), at, 1, 0, NULL, NULL);
	MUST(clSetUserEventStatus(gate, CL_COMPLETE));
	CHECK(first_word(at) == 1);
	clt_code(clEnqueueWaitForEvents(clt_queue(), 0, NULL), "none");
	MUST(clReleaseEvent(gate));
	MUST(clReleaseMemObject(at));
}

// --- user events --------------------------------------------------------------------------------

static void *open_gate(void *gate) {
	uint64_t until = clt_now() + 20000000;
	while (clt_now() < until)
		;
	CHECK(clSetUserEventStatus(gate, CL_COMPLETE) == CL_SUCCESS);
	return NULL;
}

// One thread waits in a blocking call for a user event that another thread sets.
static void gate_from_thread(void) {
	for (int how = 0; how < 4; how++) {
		cl_mem at = zeros();
		cl_event gate = user_event(), done;
		pthread_t thread;
		launch_add(clt_queue(), at, 9, 1, &gate, &done);
		CHECK(pthread_create(&thread, NULL, open_gate, gate) == 0);
		cl_uint value = 9;
		if (how == 0)
			MUST(clFinish(clt_queue()));
		if (how == 1)
			MUST(clWaitForEvents(1, &done));
		if (how == 2)
			MUST(clEnqueueReadBuffer(clt_queue(), at, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
		if (how == 3)
			CHECK(poll_until_ended(done) == CL_COMPLETE);
		CHECK(value == 9 && status_of(done) == CL_COMPLETE);
		pthread_join(thread, NULL);
		CHECK(first_word(at) == 9);
		MUST(clReleaseEvent(gate));
		MUST(clReleaseEvent(done));
		MUST(clReleaseMemObject(at));
	}
}

// A gate holds commands on two queues back; none of them may run before it opens.
static void gate_two_queues(void) {
	cl_command_queue second = clt_new_queue(clt_context(), 0);
	cl_mem a = zeros(), b = zeros();
	cl_event gate = user_event(), done[2];
	cl_uint value = 77;
	launch_add(clt_queue(), a, 1, 1, &gate, &done[0]);
	launch_add(second, b, 2, 1, &gate, &done[1]);
	MUST(clFlush(clt_queue()));
	MUST(clFlush(second));
	cl_command_queue third = clt_new_queue(clt_context(), 0);
	MUST(clEnqueueReadBuffer(third, a, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
	CHECK(value == 0 && status_of(done[0]) > CL_COMPLETE && status_of(done[1]) > CL_COMPLETE);
	MUST(clSetUserEventStatus(gate, CL_COMPLETE));
	MUST(clWaitForEvents(2, done));
	CHECK(first_word(a) == 1 && first_word(b) == 2);
	MUST(clReleaseEvent(gate));
	for (int i = 0; i < 2; i++)
		MUST(clReleaseEvent(done[i]));
	MUST(clReleaseCommandQueue(second));
	MUST(clReleaseCommandQueue(third));
	MUST(clReleaseMemObject(a));
	MUST(clReleaseMemObject(b));
}

// A gate that fails also fails the commands that wait for it, and only those.
static void gate_fails(void) {
	cl_command_queue queue = clt_new_queue(clt_context(), CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_mem at = zeros(), free_ = zeros();
	cl_event gate = user_event(), first, second, beside;
	launch_add(queue, at, 1, 1, &gate, &first);
	launch_add(queue, at, 1, 1, &first, &second);
	launch_add(queue, free_, 1, 0, NULL, &beside);
	MUST(clSetUserEventStatus(gate, -42));
	clt_code(clWaitForEvents(1, &first), "wait for the first");
	clt_code(clWaitForEvents(1, &second), "wait for the second");
	clt_code(clWaitForEvents(1, &gate), "wait for the gate");
	clt_code(clWaitForEvents(1, &beside), "wait for the one beside");
	cl_event both[] = {beside, second};
	clt_code(clWaitForEvents(2, both), "wait for good and bad");
	clt_say("states", "gate=%d first=%d second=%d beside=%d", status_of(gate), status_of(first), status_of(second),
		status_of(beside));
	clt_code(clFinish(queue), "finish");
	CHECK(first_word(at) == 0 && first_word(free_) == 1);
	launch_add(queue, at, 5, 0, NULL, NULL);
	clt_code(clFinish(queue), "finish later");
	CHECK(first_word(at) == 5);
	cl_event all[] = {gate, first, second, beside};
	for (size_t i = 0; i < COUNT(all); i++)
		MUST(clReleaseEvent(all[i]));
	MUST(clReleaseMemObject(at));
	MUST(clReleaseMemObject(free_));
	MUST(clReleaseCommandQueue(queue));
}

static void user_refused(void) {
	cl_event event = user_event(), done;
	cl_int code;
	clt_say("new", "%d", status_of(event));
	clt_code(clSetUserEventStatus(event, CL_RUNNING), "running");
	clt_code(clSetUserEventStatus(event, CL_SUBMITTED), "submitted");
	clt_code(clSetUserEventStatus(event, CL_COMPLETE), "complete");
	clt_code(clSetUserEventStatus(event, CL_COMPLETE), "complete twice");
	clt_code(clSetUserEventStatus(NULL, CL_COMPLETE), "no event");
	clt_code(clWaitForEvents(1, &event), "wait");
	CHECK(clCreateUserEvent(NULL, &code) == NULL);
	clt_code(code, "no context");
	MUST(clEnqueueMarkerWithWaitList(clt_queue(), 0, NULL, &done));
	clt_code(clSetUserEventStatus(done, CL_COMPLETE), "of a command");
	MUST(clFinish(clt_queue()));
	MUST(clReleaseEvent(done));
	MUST(clReleaseEvent(event));
}

// --- callbacks ----------------------------------------------------------------------------------

static atomic_int calls[4], wrong;

static void CL_CALLBACK count_call(cl_event event, cl_int status, void *data) {
	int wanted = (int)(intptr_t)data;
	if (status != wanted && status != CL_COMPLETE && status >= 0)
		atomic_fetch_add(&wrong, 1);
	if (!event)
		atomic_fetch_add(&wrong, 1);
	atomic_fetch_add(&calls[wanted], 1);
}

static void callbacks(void) {
	for (int i = 0; i < 4; i++)
		atomic_store(&calls[i], 0);
	cl_mem at = zeros();
	cl_event gate = user_event();
	enum { rounds = 50 };
	for (int i = 0; i < rounds; i++) {
		cl_event done;
		launch_add(clt_queue(), at, 1, 1, &gate, &done);
		MUST(clSetEventCallback(done, CL_SUBMITTED, count_call, (void *)(intptr_t)CL_SUBMITTED));
		MUST(clSetEventCallback(done, CL_RUNNING, count_call, (void *)(intptr_t)CL_RUNNING));
		MUST(clSetEventCallback(done, CL_COMPLETE, count_call, (void *)(intptr_t)CL_COMPLETE));
		MUST(clReleaseEvent(done));
	}
	MUST(clFlush(clt_queue()));
	CHECK(atomic_load(&calls[CL_COMPLETE]) == 0);
	MUST(clSetUserEventStatus(gate, CL_COMPLETE));
	for (int i = 0; i < 3; i++)
		CHECK(await(&calls[i], rounds));
	CHECK(atomic_load(&wrong) == 0);
	MUST(clFinish(clt_queue()));
	clt_code(clSetEventCallback(gate, CL_QUEUED, count_call, NULL), "queued");
	clt_code(clSetEventCallback(gate, 77, count_call, NULL), "unknown state");
	clt_code(clSetEventCallback(gate, CL_COMPLETE, NULL, NULL), "no function");
	clt_code(clSetEventCallback(NULL, CL_COMPLETE, count_call, NULL), "no event");
	MUST(clReleaseEvent(gate));
	MUST(clReleaseMemObject(at));
}

// A callback that is set on a command that has ended is called nevertheless.
static void callback_late(void) {
	cl_mem at = zeros();
	cl_event done;
	for (int i = 0; i < 4; i++)
		atomic_store(&calls[i], 0);
	launch_add(clt_queue(), at, 1, 0, NULL, &done);
	MUST(clFinish(clt_queue()));
	MUST(clSetEventCallback(done, CL_COMPLETE, count_call, (void *)(intptr_t)CL_COMPLETE));
	MUST(clSetEventCallback(done, CL_SUBMITTED, count_call, (void *)(intptr_t)CL_SUBMITTED));
	CHECK(await(&calls[CL_COMPLETE], 1) && await(&calls[CL_SUBMITTED], 1));
	MUST(clReleaseEvent(done));
	MUST(clReleaseMemObject(at));
}

static atomic_int failed_with;

static void CL_CALLBACK note_status(cl_event event, cl_int status, void *data) {
	(void)event;
	atomic_store((atomic_int *)data, status);
}

// PoCL 3.1 never calls back for a command whose wait list failed.
static void callback_of_failure(void) {
	cl_mem at = zeros();
	cl_event gate = user_event(), done;
	atomic_store(&failed_with, 99);
	launch_add(clt_queue(), at, 1, 1, &gate, &done);
	MUST(clSetEventCallback(done, CL_COMPLETE, note_status, &failed_with));
	MUST(clSetUserEventStatus(gate, -7));
	uint64_t until = clt_now() + patience_s * 1000000000ull;
	while (atomic_load(&failed_with) == 99 && clt_now() < until)
		;
	CHECK(atomic_load(&failed_with) < 0);
	MUST(clFinish(clt_queue()));
	MUST(clReleaseEvent(gate));
	MUST(clReleaseEvent(done));
	MUST(clReleaseMemObject(at));
}

// A callback may enqueue, release and set user events; it must not block.
static atomic_int stage;
static cl_event second_gate;

static void CL_CALLBACK go_on(cl_event event, cl_int status, void *data) {
	(void)event, (void)status;
	cl_mem at = data;
	CHECK(clEnqueueFillBuffer(clt_queue(), at, "\3", 1, 4, 4, 0, NULL, NULL) == CL_SUCCESS);
	CHECK(clFlush(clt_queue()) == CL_SUCCESS);
	CHECK(clSetUserEventStatus(second_gate, CL_COMPLETE) == CL_SUCCESS);
	CHECK(clReleaseEvent(event) == CL_SUCCESS);
	atomic_store(&stage, 1);
}

static void callback_calls(void) {
	cl_command_queue second = clt_new_queue(clt_context(), 0);
	cl_mem at = zeros();
	cl_event done, last;
	atomic_store(&stage, 0);
	second_gate = user_event();
	launch_add(second, at, 1, 1, &second_gate, &last);
	MUST(clFlush(second));
	launch_add(clt_queue(), at, 1, 0, NULL, &done);
	MUST(clSetEventCallback(done, CL_COMPLETE, go_on, at));
	MUST(clFlush(clt_queue()));
	MUST(clWaitForEvents(1, &last));
	CHECK(await(&stage, 1));
	MUST(clFinish(clt_queue()));
	CHECK(first_word(at) == 2);
	MUST(clReleaseEvent(last));
	MUST(clReleaseEvent(second_gate));
	MUST(clReleaseMemObject(at));
	MUST(clReleaseCommandQueue(second));
}

// --- polling ------------------------------------------------------------------------------------

static void polling(void) {
	cl_mem at = zeros();
	for (cl_uint i = 0; i < 100; i++) {
		cl_event done;
		launch_add(clt_queue(), at, 1, 0, NULL, &done);
		MUST(clFlush(clt_queue()));
		CHECK(poll_until_ended(done) == CL_COMPLETE);
		MUST(clReleaseEvent(done));
	}
	CHECK(first_word(at) == 100);
	MUST(clReleaseMemObject(at));
}

// When the event of a non-blocking read says complete, the bytes are in the program's memory.
static void polled_read(void) {
	cl_mem at = zeros();
	for (cl_uint i = 1; i <= 50; i++) {
		cl_event done;
		volatile cl_uint *value = (volatile cl_uint *)other;
		*value = 0xffffffff;
		launch_add(clt_queue(), at, 1, 0, NULL, NULL);
		MUST(clEnqueueReadBuffer(clt_queue(), at, CL_FALSE, 0, size, other, 0, NULL, &done));
		MUST(clFlush(clt_queue()));
		CHECK(poll_until_ended(done) == CL_COMPLETE);
		CHECK(*value == i);
		MUST(clReleaseEvent(done));
	}
	MUST(clReleaseMemObject(at));
}

// --- profiling ----------------------------------------------------------------------------------

static cl_ulong stamp(cl_event event, cl_profiling_info name) {
	cl_ulong value = 0;
	MUST(clGetEventProfilingInfo(event, name, sizeof value, &value, NULL));
	return value;
}

// The clocks from which a driver may take its times. Times of another machine's clock must have
// been converted to one of them.
static const clockid_t clocks[] = {CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC, CLOCK_REALTIME};

static void read_clocks(uint64_t *now) {
	for (size_t i = 0; i < COUNT(clocks); i++) {
		struct timespec t;
		clock_gettime(clocks[i], &t);
		now[i] = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	}
}

// The four times are in order and lie between the program's own readings of one of its clocks
// before and after.
static void check_times(cl_event event, const uint64_t *before, const uint64_t *after) {
	cl_ulong queued = stamp(event, CL_PROFILING_COMMAND_QUEUED), submitted = stamp(event, CL_PROFILING_COMMAND_SUBMIT);
	cl_ulong start = stamp(event, CL_PROFILING_COMMAND_START), end = stamp(event, CL_PROFILING_COMMAND_END);
	CHECK(queued <= submitted && submitted <= start && start <= end);
	bool fits = false;
	for (size_t i = 0; i < COUNT(clocks); i++)
		fits |= before[i] <= queued && end <= after[i];
	CHECK(fits);
}

static void profiling(void) {
	cl_command_queue queue = clt_new_queue(clt_context(), CL_QUEUE_PROFILING_ENABLE);
	cl_mem at = zeros();
	cl_ulong last_end = 0;
	for (cl_uint i = 0; i < 20; i++) {
		cl_event done[3];
		uint64_t before[COUNT(clocks)], after[COUNT(clocks)];
		read_clocks(before);
		launch_add(queue, at, 1, 0, NULL, &done[0]);
		MUST(clEnqueueReadBuffer(queue, at, CL_TRUE, 0, size, other, 0, NULL, &done[1]));
		MUST(clEnqueueMarkerWithWaitList(queue, 0, NULL, &done[2]));
		MUST(clFinish(queue));
		read_clocks(after);
		for (int k = 0; k < 3; k++) {
			check_times(done[k], before, after);
			CHECK(stamp(done[k], CL_PROFILING_COMMAND_START) >= last_end);
			last_end = k < 2 ? stamp(done[k], CL_PROFILING_COMMAND_END) : last_end;
			MUST(clReleaseEvent(done[k]));
		}
	}
	MUST(clReleaseMemObject(at));
	MUST(clReleaseCommandQueue(queue));
}

static void profiling_refused(void) {
	cl_command_queue queue = clt_new_queue(clt_context(), CL_QUEUE_PROFILING_ENABLE);
	cl_event user = user_event(), done, plain, gated;
	cl_ulong value;
	MUST(clEnqueueMarkerWithWaitList(queue, 0, NULL, &done));
	MUST(clEnqueueMarkerWithWaitList(clt_queue(), 0, NULL, &plain));
	MUST(clFinish(queue));
	MUST(clFinish(clt_queue()));
	MUST(clEnqueueMarkerWithWaitList(queue, 1, &user, &gated));
	clt_code(clGetEventProfilingInfo(gated, CL_PROFILING_COMMAND_END, 8, &value, NULL), "not complete");
	clt_code(clGetEventProfilingInfo(plain, CL_PROFILING_COMMAND_END, 8, &value, NULL), "queue without profiling");
	clt_code(clGetEventProfilingInfo(user, CL_PROFILING_COMMAND_END, 8, &value, NULL), "user event");
	clt_code(clGetEventProfilingInfo(done, 0x9999, 8, &value, NULL), "unknown name");
	clt_code(clGetEventProfilingInfo(done, CL_PROFILING_COMMAND_END, 4, &value, NULL), "too short");
	clt_code(clGetEventProfilingInfo(NULL, CL_PROFILING_COMMAND_END, 8, &value, NULL), "no event");
	MUST(clSetUserEventStatus(user, CL_COMPLETE));
	MUST(clFinish(queue));
	clt_code(clGetEventProfilingInfo(gated, CL_PROFILING_COMMAND_END, 8, &value, NULL), "complete");
	cl_event all[] = {user, done, plain, gated};
	for (size_t i = 0; i < COUNT(all); i++)
		MUST(clReleaseEvent(all[i]));
	MUST(clReleaseCommandQueue(queue));
}

// --- queries and counts -------------------------------------------------------------------------

static cl_uint references_of(cl_event event) {
	cl_uint count = 0;
	MUST(clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, NULL));
	return count;
}

static void say_type(cl_event event, const char *what) {
	cl_command_type type = 0;
	cl_command_queue queue = NULL;
	cl_context context = NULL;
	MUST(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
	MUST(clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL));
	MUST(clGetEventInfo(event, CL_EVENT_CONTEXT, sizeof context, &context, NULL));
	clt_say(what, "type=%#x queue=%d", (unsigned)type, queue == clt_queue());
	CHECK(context == clt_context());
	MUST(clReleaseEvent(event));
}

static void info(void) {
	cl_mem a = zeros(), b = zeros();
	cl_command_queue q = clt_queue();
	static const size_t zero[3], region[3] = {4, 4, 4};
	cl_event e;
	launch_add(q, a, 1, 0, NULL, &e);
	say_type(e, "launch");
	MUST(clEnqueueReadBuffer(q, a, CL_TRUE, 0, 4, other, 0, NULL, &e));
	say_type(e, "read");
	MUST(clEnqueueWriteBuffer(q, a, CL_TRUE, 0, 4, other, 0, NULL, &e));
	say_type(e, "write");
	MUST(clEnqueueCopyBuffer(q, a, b, 0, 0, 4, 0, NULL, &e));
	say_type(e, "copy");
	MUST(clEnqueueReadBufferRect(q, a, CL_TRUE, zero, zero, region, 0, 0, 0, 0, other, 0, NULL, &e));
	say_type(e, "read rectangle");
	MUST(clEnqueueWriteBufferRect(q, a, CL_TRUE, zero, zero, region, 0, 0, 0, 0, other, 0, NULL, &e));
	say_type(e, "write rectangle");
	MUST(clEnqueueCopyBufferRect(q, a, b, zero, zero, region, 0, 0, 0, 0, 0, NULL, &e));
	say_type(e, "copy rectangle");
	MUST(clEnqueueFillBuffer(q, a, "x", 1, 0, 4, 0, NULL, &e));
	say_type(e, "fill");
	MUST(clEnqueueMigrateMemObjects(q, 1, &a, 0, 0, NULL, &e));
	say_type(e, "migrate");
	MUST(clEnqueueMarkerWithWaitList(q, 0, NULL, &e));
	say_type(e, "marker");
	MUST(clEnqueueBarrierWithWaitList(q, 0, NULL, &e));
	say_type(e, "barrier");
	say_type(user_event(), "user");
	MUST(clFinish(q));
	MUST(clReleaseMemObject(a));
	MUST(clReleaseMemObject(b));
}

static void references(void) {
	cl_event e = user_event();
	clt_say("new", "%u", references_of(e));
	MUST(clRetainEvent(e));
	MUST(clRetainEvent(e));
	clt_say("retained twice", "%u", references_of(e));
	MUST(clReleaseEvent(e));
	MUST(clReleaseEvent(e));
	clt_say("released twice", "%u", references_of(e));
	MUST(clSetUserEventStatus(e, CL_COMPLETE));
	cl_int value;
	size_t bytes = 0;
	clt_code(clGetEventInfo(e, CL_EVENT_REFERENCE_COUNT, 2, &value, NULL), "too short");
	clt_code(clGetEventInfo(e, 0x9999, 4, &value, NULL), "unknown name");
	clt_code(clGetEventInfo(e, CL_EVENT_COMMAND_TYPE, 0, NULL, &bytes), "size only");
	clt_say("size", "%zu", bytes);
	MUST(clReleaseEvent(e));
	clt_code(clGetEventInfo(NULL, CL_EVENT_REFERENCE_COUNT, 4, &value, NULL), "no event");
	clt_code(clRetainEvent(NULL), "retain null");
	clt_code(clReleaseEvent(NULL), "release null");
	clt_code(clWaitForEvents(0, NULL), "wait for nothing");
	clt_code(clWaitForEvents(1, NULL), "wait without list");
	e = NULL;
	clt_code(clWaitForEvents(1, &e), "wait for null");
}

static void other_context(void) {
	cl_context elsewhere = clt_new_context();
	cl_int code;
	cl_event foreign = clCreateUserEvent(elsewhere, &code), own = user_event();
	MUST(code);
	cl_event both[] = {own, foreign};
	MUST(clSetUserEventStatus(foreign, CL_COMPLETE));
	MUST(clSetUserEventStatus(own, CL_COMPLETE));
	clt_code(clEnqueueMarkerWithWaitList(clt_queue(), 1, &foreign, NULL), "enqueue");
	clt_code(clWaitForEvents(2, both), "wait for both");
	MUST(clFinish(clt_queue()));
	MUST(clReleaseEvent(foreign));
	MUST(clReleaseEvent(own));
	MUST(clReleaseContext(elsewhere));
}

// --- queues -------------------------------------------------------------------------------------

static void say_queue(cl_command_queue queue, const char *what) {
	cl_command_queue_properties properties = 99;
	cl_uint count = 0, room = 7;
	cl_device_id device = NULL;
	cl_context context = NULL;
	size_t bytes = 99;
	MUST(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL));
	MUST(clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof count, &count, NULL));
	MUST(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL));
	MUST(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL));
	CHECK(device == clt_device() && context == clt_context());
	clt_say(what, "properties=%#x references=%u", (unsigned)properties, count);
	if (clt_version() >= 20)
		clt_code(clGetCommandQueueInfo(queue, CL_QUEUE_SIZE, sizeof room, &room, NULL), "%s size", what);
	if (clt_version() >= 30) {
		MUST(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, 0, NULL, &bytes));
		clt_say(what, "array of %zu bytes", bytes);
	}
}

static void queues(void) {
	static const cl_command_queue_properties kinds[] = {0, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
		BOTH, 1 << 20, CL_QUEUE_ON_DEVICE};
	for (size_t i = 0; i < COUNT(kinds); i++) {
		cl_int code;
		cl_command_queue queue = clCreateCommandQueue(clt_context(), clt_device(), kinds[i], &code);
		clt_code(code, "create %#x", (unsigned)kinds[i]);
		if (!queue)
			continue;
		say_queue(queue, "queue");
		MUST(clReleaseCommandQueue(queue));
	}
	cl_int code;
	CHECK(clCreateCommandQueue(NULL, clt_device(), 0, &code) == NULL);
	clt_code(code, "no context");
	CHECK(clCreateCommandQueue(clt_context(), NULL, 0, &code) == NULL);
	clt_code(code, "no device");
	cl_ulong value;
	clt_code(clGetCommandQueueInfo(clt_queue(), 0x9999, 8, &value, NULL), "unknown name");
	clt_code(clGetCommandQueueInfo(clt_queue(), CL_QUEUE_CONTEXT, 4, &value, NULL), "too short");
	clt_code(clGetCommandQueueInfo(NULL, CL_QUEUE_CONTEXT, 8, &value, NULL), "no queue");
	clt_code(clFlush(NULL), "flush null");
	clt_code(clFinish(NULL), "finish null");
	clt_code(clRetainCommandQueue(NULL), "retain null");
	clt_code(clReleaseCommandQueue(NULL), "release null");
}

// PoCL 3.1 crashes here.
static void set_property(void) {
	cl_command_queue queue = clt_new_queue(clt_context(), 0);
	cl_int code = clSetCommandQueueProperty(queue, CL_QUEUE_PROFILING_ENABLE, CL_TRUE, NULL);
	CHECK(code == CL_SUCCESS || code == CL_INVALID_OPERATION);
	MUST(clReleaseCommandQueue(queue));
}

static void queues_with_properties(void) {
	if (clt_version() < 20)
		clt_skip("needs OpenCL 2.0");
	cl_queue_properties lists[][5] = {{0}, {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0}, {CL_QUEUE_PROPERTIES, BOTH, 0},
		{CL_QUEUE_SIZE, 1024, 0}, {0x9999, 1, 0}, {CL_QUEUE_PROPERTIES, 1 << 20, 0}};
	for (size_t i = 0; i < COUNT(lists); i++) {
		cl_int code;
		cl_command_queue queue = clCreateCommandQueueWithProperties(clt_context(), clt_device(), lists[i], &code);
		clt_code(code, "list %zu", i);
		if (!queue)
			continue;
		say_queue(queue, "queue");
		MUST(clReleaseCommandQueue(queue));
	}
	cl_int code;
	cl_command_queue queue = clCreateCommandQueueWithProperties(clt_context(), clt_device(), NULL, &code);
	MUST(code);
	say_queue(queue, "no list");
	MUST(clReleaseCommandQueue(queue));
}

// A queue at the address of a released one answers with its own list. Drivers refuse CL_QUEUE_SIZE
// beside the properties that a recording adds.
static void queue_at_released_address(void) {
	if (clt_version() < 30)
		clt_skip("needs OpenCL 3.0");
	cl_queue_properties sized[] = {CL_QUEUE_SIZE, 1024, 0};
	cl_command_queue queues[32];
	cl_int code;
	for (size_t i = 0; i < COUNT(queues); i++)
		queues[i] = clt_new_queue(clt_context(), 0);
	for (size_t i = 0; i < COUNT(queues); i++)
		MUST(clReleaseCommandQueue(queues[i]));
	for (size_t i = 0; i < COUNT(queues); i++) {
		queues[i] = clCreateCommandQueueWithProperties(clt_context(), clt_device(), sized, &code);
		if (!queues[i])
			clt_skip("the driver refuses a size for a queue on the host");
	}
	for (size_t i = 0; i < COUNT(queues); i++) {
		say_queue(queues[i], "queue");
		MUST(clReleaseCommandQueue(queues[i]));
	}
}

// The commands of a queue that is released early still run.
static void queue_released(void) {
	cl_mem at = zeros();
	for (int i = 0; i < 20; i++) {
		cl_command_queue queue = clt_new_queue(clt_context(), i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
		cl_event done;
		launch_add(queue, at, 1, 0, NULL, &done);
		MUST(clReleaseCommandQueue(queue));
		MUST(clWaitForEvents(1, &done));
		MUST(clReleaseEvent(done));
	}
	CHECK(first_word(at) == 20);
	MUST(clReleaseMemObject(at));
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"chain", chain},
		{"fan", fan},
		{"markers", markers},
		{"old_wait", old_wait},
		{"gate_from_thread", gate_from_thread},
		{"gate_two_queues", gate_two_queues},
		{"gate_fails", gate_fails},
		{"user_refused", user_refused},
		{"callbacks", callbacks},
		{"callback_late", callback_late},
		{"callback_of_failure", callback_of_failure},
		{"callback_calls", callback_calls},
		{"polling", polling},
		{"polled_read", polled_read},
		{"profiling", profiling},
		{"profiling_refused", profiling_refused},
		{"info", info},
		{"references", references},
		{"other_context", other_context},
		{"queues", queues},
		{"set_property", set_property},
		{"queues_with_properties", queues_with_properties},
		{"queue_at_released_address", queue_at_released_address},
		{"queue_released", queue_released},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
