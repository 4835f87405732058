// Commands that fail, at once or through their wait list; where the error shows; and that other
// commands continue.
#include "clt.h"

enum { size = 4096, refused = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST };

static unsigned char host[size], other[size];

static cl_kernel add_kernel(void) {
	static cl_kernel kernel;
	if (!kernel)
		kernel = clt_kernel(clt_build("kernel void add(global uint *at, uint value) { at[get_global_id(0)] += value; }\n", NULL),
			"add");
	return kernel;
}

static cl_int launch_add(cl_command_queue queue, cl_mem at, cl_uint value, cl_uint waits, const cl_event *list, cl_event *done) {
	cl_kernel kernel = add_kernel();
	size_t items = size / 4;
	MUST(clSetKernelArg(kernel, 0, sizeof at, &at));
	MUST(clSetKernelArg(kernel, 1, sizeof value, &value));
	return clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, waits, list, done);
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

static cl_event failed_event(cl_int status) {
	cl_event event = user_event();
	MUST(clSetUserEventStatus(event, status));
	return event;
}

// Commands that are enqueued after their wait list has failed. PoCL 3.1 never starts or ends such a
// command.
static void after_failure(void) {
	cl_command_queue queue = clt_new_queue(clt_context(), CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_event bad = failed_event(-5), done = NULL;
	cl_mem at = zeros();
	cl_int code = launch_add(queue, at, 1, 1, &bad, &done);
	CHECK(code == CL_SUCCESS || code == refused);
	if (code == CL_SUCCESS) {
		CHECK(clWaitForEvents(1, &done) == refused && status_of(done) < 0);
		MUST(clReleaseEvent(done));
	}
	memset(other, 7, size);
	CHECK(clEnqueueReadBuffer(queue, at, CL_TRUE, 0, 16, other, 1, &bad, NULL) == refused && other[0] == 7);
	CHECK(clEnqueueWriteBuffer(queue, at, CL_TRUE, 0, 16, other, 1, &bad, NULL) == refused);
	CHECK(clEnqueueMapBuffer(queue, at, CL_TRUE, CL_MAP_READ, 0, 16, 1, &bad, NULL, &code) == NULL && code == refused);
	MUST(clFinish(queue));
	CHECK(first_word(at) == 0);
	MUST(clReleaseEvent(bad));
	MUST(clReleaseMemObject(at));
	MUST(clReleaseCommandQueue(queue));
}

// A command after a failed command on an in-order queue, without waiting for it.
static void in_order(void) {
	cl_command_queue queue = clt_new_queue(clt_context(), 0);
	cl_event gate = user_event(), bad, next;
	cl_mem at = zeros(), second = zeros();
	MUST(launch_add(queue, at, 1, 1, &gate, &bad));
	MUST(launch_add(queue, second, 2, 0, NULL, &next));
	MUST(clFlush(queue));
	MUST(clSetUserEventStatus(gate, -9));
	clt_code(clWaitForEvents(1, &bad), "wait for the failed");
	clt_code(clWaitForEvents(1, &next), "wait for the next");
	clt_code(clFinish(queue), "finish");
	clt_say("statuses", "%d %d", status_of(bad), status_of(next));
	clt_say("values", "%u %u", first_word(at), first_word(second));
	MUST(launch_add(queue, second, 10, 0, NULL, NULL));
	clt_code(clFinish(queue), "finish later");
	CHECK(first_word(second) >= 10);
	cl_event all[] = {gate, bad, next};
	for (int i = 0; i < 3; i++)
		MUST(clReleaseEvent(all[i]));
	MUST(clReleaseMemObject(at));
	MUST(clReleaseMemObject(second));
	MUST(clReleaseCommandQueue(queue));
}

// A failure propagates along a chain over two queues and every kind of command.
static void chain(void) {
	cl_command_queue a = clt_new_queue(clt_context(), CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_command_queue b = clt_new_queue(clt_context(), CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
	cl_mem at = zeros(), to = zeros();
	cl_event gate = user_event(), e[6];
	MUST(launch_add(a, at, 1, 1, &gate, &e[0]));
	MUST(clEnqueueCopyBuffer(b, at, to, 0, 0, size, 1, &e[0], &e[1]));
	MUST(clEnqueueFillBuffer(a, to, "z", 1, 0, size, 1, &e[1], &e[2]));
	MUST(clEnqueueReadBuffer(b, to, CL_FALSE, 0, size, other, 1, &e[2], &e[3]));
	MUST(clEnqueueMarkerWithWaitList(a, 1, &e[3], &e[4]));
	MUST(clEnqueueWriteBuffer(b, to, CL_FALSE, 0, size, host, 1, &e[4], &e[5]));
	memset(other, 7, size);
	MUST(clFlush(a));
	MUST(clFlush(b));
	MUST(clSetUserEventStatus(gate, -77));
	for (int i = 0; i < 6; i++) {
		clt_code(clWaitForEvents(1, &e[i]), "wait for %d", i);
		CHECK(status_of(e[i]) < 0);
		MUST(clReleaseEvent(e[i]));
	}
	MUST(clFinish(a));
	MUST(clFinish(b));
	CHECK(other[0] == 7 && first_word(to) == 0 && first_word(at) == 0);
	MUST(clReleaseEvent(gate));
	MUST(clReleaseMemObject(at));
	MUST(clReleaseMemObject(to));
	MUST(clReleaseCommandQueue(a));
	MUST(clReleaseCommandQueue(b));
}

static void profile_of_failed(void) {
	cl_command_queue queue = clt_new_queue(clt_context(), CL_QUEUE_PROFILING_ENABLE);
	cl_event gate = user_event(), bad;
	cl_ulong value;
	MUST(clEnqueueMarkerWithWaitList(queue, 1, &gate, &bad));
	MUST(clSetUserEventStatus(gate, -2));
	clt_code(clWaitForEvents(1, &bad), "wait");
	clt_code(clGetEventProfilingInfo(bad, CL_PROFILING_COMMAND_END, 8, &value, NULL), "end");
	MUST(clReleaseEvent(gate));
	MUST(clReleaseEvent(bad));
	MUST(clReleaseCommandQueue(queue));
}

// Buffers until memory is exhausted: an error with a name, and success again when they are
// released.
static void out_of_memory(void) {
	enum { most = 64 };
	cl_mem buffers[most];
	cl_ulong largest = 0, total = 0;
	int count = 0;
	cl_int code = CL_SUCCESS;
	MUST(clGetDeviceInfo(clt_device(), CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest, NULL));
	MUST(clGetDeviceInfo(clt_device(), CL_DEVICE_GLOBAL_MEM_SIZE, sizeof total, &total, NULL));
	if (largest > total / 3)
		largest = total / 3;
	while (count < most && code == CL_SUCCESS) {
		buffers[count] = clCreateBuffer(clt_context(), 0, largest, NULL, &code);
		count += code == CL_SUCCESS;
	}
	CHECK(code == CL_SUCCESS || code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
		code == CL_OUT_OF_HOST_MEMORY);
	for (int i = 0; i < count; i++)
		MUST(clReleaseMemObject(buffers[i]));
	cl_mem at = zeros();
	MUST(launch_add(clt_queue(), at, 4, 0, NULL, NULL));
	CHECK(first_word(at) == 4);
	MUST(clReleaseMemObject(at));
}

// An error of one command does not affect later commands, of the same queue or of others.
static void nothing_sticks(void) {
	cl_mem at = zeros();
	for (int i = 0; i < 50; i++) {
		CHECK(clEnqueueReadBuffer(clt_queue(), at, CL_FALSE, size, 1, other, 0, NULL, NULL) == CL_INVALID_VALUE);
		CHECK(clEnqueueCopyBuffer(clt_queue(), at, at, 0, 1, 2, 0, NULL, NULL) == CL_MEM_COPY_OVERLAP);
		MUST(launch_add(clt_queue(), at, 1, 0, NULL, NULL));
	}
	MUST(clFinish(clt_queue()));
	clt_say("value", "%u", first_word(at));
	MUST(clReleaseMemObject(at));
}

// A refused command gives no event.
static void refused_gives_no_event(void) {
	cl_mem at = zeros();
	cl_event event = (cl_event)host;
	clt_code(clEnqueueReadBuffer(clt_queue(), at, CL_FALSE, size, 1, other, 0, NULL, &event), "read");
	CHECK(event == (cl_event)host || event == NULL);
	event = (cl_event)host;
	clt_code(clEnqueueFillBuffer(clt_queue(), at, "abc", 3, 0, 3, 0, NULL, &event), "fill");
	CHECK(event == (cl_event)host || event == NULL);
	MUST(clReleaseMemObject(at));
}

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"after_failure", after_failure},
		{"in_order", in_order},
		{"chain", chain},
		{"profile_of_failed", profile_of_failed},
		{"out_of_memory", out_of_memory},
		{"nothing_sticks", nothing_sticks},
		{"refused_gives_no_event", refused_gives_no_event},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
