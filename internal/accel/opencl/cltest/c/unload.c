// Programs that open the OpenCL library by name and close it again. This program is not linked with
// it.
#define _GNU_SOURCE
#include "child.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define FUNCTIONS(each) \
	each(clGetPlatformIDs) each(clGetDeviceIDs) each(clCreateContext) each(clCreateCommandQueue) each(clCreateBuffer) \
	each(clEnqueueWriteBuffer) each(clEnqueueFillBuffer) each(clEnqueueReadBuffer) each(clFinish) each(clReleaseMemObject) \
	each(clReleaseCommandQueue) each(clReleaseContext) each(clCreateUserEvent) each(clSetEventCallback) \
	each(clSetUserEventStatus) each(clReleaseEvent)

struct library {
	void *handle;
#define POINTER(name) __typeof__(name) *name;
	FUNCTIONS(POINTER)
#undef POINTER
};

static bool library_open(struct library *l) {
	l->handle = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!l->handle)
		return false;
	bool all = true;
#define FIND(name) \
	*(void **)&l->name = dlsym(l->handle, #name); \
	all &= l->name != NULL;
	FUNCTIONS(FIND)
#undef FIND
	return all;
}

static void CL_CALLBACK called(cl_event event, cl_int status, void *data) {
	(void)event, (void)status;
	__atomic_store_n((int *)data, 1, __ATOMIC_SEQ_CST);
}

// use returns 0 when everything worked. With leave it releases nothing.
static int use(const struct library *l, bool leave) {
	cl_platform_id platform;
	cl_device_id device;
	cl_int code, value = 5;
	static int flag;
	flag = 0;
	if (l->clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS)
		return 1;
	if (l->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
		return 2;
	cl_context context = l->clCreateContext(NULL, 1, &device, NULL, NULL, &code);
	cl_command_queue queue = context ? l->clCreateCommandQueue(context, device, 0, &code) : NULL;
	cl_mem buffer = queue ? l->clCreateBuffer(context, 0, 4096, NULL, &code) : NULL;
	cl_event event = buffer ? l->clCreateUserEvent(context, &code) : NULL;
	if (!event)
		return 3;
	code = l->clSetEventCallback(event, CL_COMPLETE, called, &flag);
	code |= l->clSetUserEventStatus(event, CL_COMPLETE);
	code |= l->clEnqueueFillBuffer(queue, buffer, "abcd", 4, 0, 4096, 0, NULL, NULL);
	code |= l->clEnqueueReadBuffer(queue, buffer, CL_TRUE, 4092, 4, &value, 0, NULL, NULL);
	if (code != CL_SUCCESS || memcmp(&value, "abcd", 4) != 0)
		return 4;
	for (uint64_t until = clt_now() + 5000000000u; !__atomic_load_n(&flag, __ATOMIC_SEQ_CST);)
		if (clt_now() > until)
			return 5;
	if (leave)
		return 0;
	code = l->clReleaseEvent(event) | l->clReleaseMemObject(buffer) | l->clReleaseCommandQueue(queue);
	return (code | l->clReleaseContext(context)) == CL_SUCCESS ? 0 : 6;
}

static int load_often(void *leave) {
	for (int i = 0; i < 10; i++) {
		struct library l;
		if (!library_open(&l))
			return 10;
		int bad = use(&l, leave != NULL);
		if (bad)
			return bad;
		if (dlclose(l.handle) != 0)
			return 11;
		usleep(2000);
	}
	return 0;
}

static void again(void) { child_must(0, load_often, NULL); }

// Objects that still exist when the library is closed.
static void leaving_objects(void) { child_must(0, load_often, (void *)1); }

static int load_unused(void *nothing) {
	(void)nothing;
	for (int i = 0; i < 50; i++) {
		struct library l;
		if (!library_open(&l) || dlclose(l.handle) != 0)
			return 1;
	}
	return child_threads() == 1 ? 0 : 2;
}

static void unused(void) { child_must(0, load_unused, NULL); }

static int load_from_small_thread_result = 9;

static void *in_thread(void *nothing) {
	(void)nothing;
	load_from_small_thread_result = load_often(NULL);
	return NULL;
}

// The thread that loaded the library has ended before the process ends.
static int load_from_thread(void *nothing) {
	(void)nothing;
	pthread_t thread;
	if (pthread_create(&thread, NULL, in_thread, NULL) != 0)
		return 20;
	pthread_join(thread, NULL);
	return load_from_small_thread_result;
}

static void from_thread(void) { child_must(0, load_from_thread, NULL); }

static int load_then_sigwait(void *nothing) {
	(void)nothing;
	sigset_t set;
	int got = 0;
	if (load_often(NULL) != 0)
		return 1;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGTERM);
	return sigwait(&set, &got) == 0 && got == SIGTERM ? 0 : 2;
}

// After the library is closed, no thread of it receives the program's signals.
static void sigwait_after(void) { child_must(0, load_then_sigwait, NULL); }

// A loader may keep a library loaded: then the child inherits a used library, and may find no
// platform, but must not hang.
static int fork_after_close(void *nothing) {
	int bad = load_often(NULL);
	if (bad)
		return bad;
	bad = child_run(load_often, nothing);
	return bad == 1 ? 0 : bad;
}

static void fork_after(void) { child_must(0, fork_after_close, NULL); }

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"again", again},
		{"leaving_objects", leaving_objects},
		{"unused", unused},
		{"from_thread", from_thread},
		{"sigwait_after", sigwait_after},
		{"fork_after", fork_after},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
