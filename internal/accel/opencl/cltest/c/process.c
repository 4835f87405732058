// Programs' handling of processes: fork, exec, exit in every way, close all files. The process that
// runs the cases never uses OpenCL itself; each case does so in a child.
#define _GNU_SOURCE
#include "child.h"
#include "work.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// --- first calls --------------------------------------------------------------------------------

// partitions_first divides a device before the program has any context, and uses a part.
static int partitions_first(void *nothing) {
	(void)nothing;
	static const cl_device_partition_property by_one[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
	cl_platform_id platform;
	cl_device_id device, parts[256];
	cl_uint count = 0;
	if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
		return 1;
	if (clCreateSubDevices(device, by_one, 256, parts, &count) != CL_SUCCESS || count == 0)
		return 2;
	cl_int code;
	cl_context context = clCreateContext(NULL, 1, parts, NULL, NULL, &code);
	if (code != CL_SUCCESS || clReleaseContext(context) != CL_SUCCESS)
		return 3;
	for (cl_uint i = 0; i < count; i++)
		if (clReleaseDevice(parts[i]) != CL_SUCCESS)
			return 4;
	return 0;
}

static void partition_first(void) { child_must(0, partitions_first, NULL); }

// --- fork ---------------------------------------------------------------------------------------

// just_work returns the negative error code of the work.
static int just_work(void *rounds) { return -work_all((int)(intptr_t)rounds); }

static void first_use_in_child(void) {
	for (int i = 0; i < 3; i++)
		child_must(0, just_work, (void *)5);
}

static void many_children(void) {
	enum { count = 6 };
	pid_t children[count];
	for (int i = 0; i < count; i++)
		children[i] = child_start(just_work, (void *)20);
	for (int i = 0; i < count; i++) {
		int got = child_wait(children[i]);
		if (got != 0)
			clt_fail(__FILE__, __LINE__, "child %d ended with %d", i, got);
	}
}

static struct work used;

static int exit_at_once(void *status) { return (int)(intptr_t)status; }

static int forks_exiting(void *nothing) {
	(void)nothing;
	if (work_open(&used) != CL_SUCCESS || work_round(&used, 1) != CL_SUCCESS)
		return 1;
	for (int i = 0; i < 5; i++)
		if (child_run(exit_at_once, (void *)(intptr_t)(40 + i)) != 40 + i)
			return 2;
	return work_round(&used, 2) == CL_SUCCESS && work_close(&used) == CL_SUCCESS ? 0 : 3;
}

// A forked child that only exits, by exit() with all its handlers, ends with its status; its parent
// continues.
static void fork_exits(void) { child_must(0, forks_exiting, NULL); }

static int call_everything(void *nothing) {
	(void)nothing;
	char text[256];
	cl_uint count;
	clGetPlatformIDs(0, NULL, &count);
	clGetDeviceInfo(NULL, CL_DEVICE_NAME, sizeof text, text, NULL);
	work_round(&used, 3);
	clFinish(used.queue);
	work_load(&used);
	work_close(&used);
	work_all(1);
	return 0;
}

static int forks_calling(void *nothing) {
	(void)nothing;
	if (work_open(&used) != CL_SUCCESS || work_round(&used, 1) != CL_SUCCESS)
		return 1;
	pid_t children[3];
	for (int i = 0; i < 3; i++)
		children[i] = child_start(call_everything, NULL);
	for (int i = 0; i < 20; i++)
		if (work_round(&used, 4 + (cl_uint)i) != CL_SUCCESS)
			return 2;
	for (int i = 0; i < 3; i++)
		if (child_wait(children[i]) != 0)
			return 3;
	return work_round(&used, 5) == CL_SUCCESS && work_close(&used) == CL_SUCCESS ? 0 : 4;
}

// A forked child that calls OpenCL gets errors or results; it never hangs and never disturbs its
// parent.
static void fork_calls(void) { child_must(0, forks_calling, NULL); }

static const char self[] = "/proc/self/exe";

static int exec_self(void *nothing) {
	(void)nothing;
	execl(self, self, "-case", "first_use_in_child", (char *)NULL);
	return 9;
}

static int forks_executing(void *nothing) {
	(void)nothing;
	if (work_open(&used) != CL_SUCCESS || work_load(&used) != CL_SUCCESS)
		return 1;
	for (int i = 0; i < 2; i++)
		if (child_run(exec_self, NULL) != 0)
			return 2;
	return clFinish(used.queue) == CL_SUCCESS && work_round(&used, 2) == CL_SUCCESS ? 0 : 3;
}

static void fork_exec(void) { child_must(0, forks_executing, NULL); }

static int spawns(void *nothing) {
	(void)nothing;
	if (work_open(&used) != CL_SUCCESS || work_load(&used) != CL_SUCCESS)
		return 1;
	for (cl_uint i = 0; i < 10; i++) {
		char *arguments[] = {"true", NULL};
		pid_t child;
		if (posix_spawnp(&child, "true", NULL, NULL, arguments, environ) != 0 || child_wait(child) != 0)
			return 2;
		if (system("exit 7") != 7 << 8 || work_round(&used, i) != CL_SUCCESS)
			return 3;
	}
	return 0;
}

static void spawn(void) { child_must(0, spawns, NULL); }

// become_daemon leaves the caller's session with the usual two forks; only the grandchild returns.
static void become_daemon(void) {
	fflush(NULL);
	if (fork() != 0)
		_exit(0);
	setsid();
	if (fork() != 0)
		_exit(0);
	alarm(child_patience_s); // no other process would end a daemon that hangs
}

static int daemon_result[2];

static int daemon_before(void *nothing) {
	(void)nothing;
	become_daemon();
	char result = (char)work_all(5);
	return write(daemon_result[1], &result, 1) == 1 ? 0 : 1;
}

static int daemon_after(void *nothing) {
	(void)nothing;
	if (work_open(&used) != CL_SUCCESS || work_round(&used, 1) != CL_SUCCESS)
		return 1;
	become_daemon();
	call_everything(NULL);
	return write(daemon_result[1], "", 1) == 1 ? 0 : 1;
}

static void daemon_one(int (*run)(void *)) {
	char result = 99;
	struct timeval limit = {child_patience_s, 0};
	fd_set ready;
	CHECK(pipe2(daemon_result, O_CLOEXEC) == 0);
	child_must(0, run, NULL);
	close(daemon_result[1]);
	FD_ZERO(&ready);
	FD_SET(daemon_result[0], &ready);
	if (select(daemon_result[0] + 1, &ready, NULL, NULL, &limit) == 1)
		CHECK(read(daemon_result[0], &result, 1) == 1);
	CHECK(result == 0);
	close(daemon_result[0]);
}

static void daemon_uses(void) { daemon_one(daemon_before); }

static void daemon_used(void) { daemon_one(daemon_after); }

static atomic_bool *stop_flag(void) {
	static atomic_bool stop;
	return &stop;
}

static void *keep_working(void *from) {
	struct work w;
	cl_int code = work_share(&w, from);
	for (cl_uint i = 0; code == CL_SUCCESS && !*stop_flag(); i++)
		code = work_round(&w, i);
	return (void *)(intptr_t)(code != CL_SUCCESS ? code : work_close(&w));
}

static int forks_in_traffic(void *nothing) {
	(void)nothing;
	pthread_t threads[3];
	if (work_open(&used) != CL_SUCCESS)
		return 1;
	for (int i = 0; i < 3; i++)
		if (pthread_create(&threads[i], NULL, keep_working, &used) != 0)
			return 2;
	int bad = 0;
	for (int i = 0; i < 30; i++) {
		pid_t child = fork();
		if (child == 0) {
			execlp("true", "true", (char *)NULL);
			_exit(9);
		}
		bad += child_wait(child) != 0;
	}
	*stop_flag() = true;
	for (int i = 0; i < 3; i++) {
		void *code = NULL;
		pthread_join(threads[i], &code);
		bad += code != NULL;
	}
	return bad ? 3 : 0;
}

static void fork_in_traffic(void) { child_must(0, forks_in_traffic, NULL); }

// --- ends ---------------------------------------------------------------------------------------

enum ending { by_return, by_exit, by_quick_exit, by__exit, by_abort, by_kill, by_segv };

static void end(enum ending how) {
	signal(SIGABRT, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	switch (how) {
	case by_return:
		return;
	case by_exit:
		exit(31);
	case by_quick_exit:
		quick_exit(31);
	case by__exit:
		_exit(31);
	case by_abort:
		abort();
	case by_kill:
		raise(SIGKILL);
		return;
	case by_segv:
		raise(SIGSEGV);
	}
}

static int ends_in_flight(void *how) {
	if (work_open(&used) != CL_SUCCESS || work_load(&used) != CL_SUCCESS)
		return 1;
	end((enum ending)(intptr_t)how);
	return 31;
}

static void *end_thread(void *how) {
	end((enum ending)(intptr_t)how);
	return NULL;
}

static int ends_from_thread(void *how) {
	pthread_t thread;
	if (work_open(&used) != CL_SUCCESS || work_load(&used) != CL_SUCCESS)
		return 1;
	if (pthread_create(&thread, NULL, end_thread, how) != 0)
		return 2;
	for (cl_uint i = 0; i < 100000; i++)
		if (work_round(&used, i) != CL_SUCCESS)
			pause(); // the other thread is ending the process
	return 3;
}

static const struct {
	enum ending how;
	const char *name;
	int status;
} endings[] = {{by_return, "return", 31}, {by_exit, "exit", 31}, {by_quick_exit, "quick_exit", 31}, {by__exit, "_exit", 31},
	{by_abort, "abort", 128 + SIGABRT}, {by_kill, "kill", 128 + SIGKILL}, {by_segv, "segv", 128 + SIGSEGV}};
enum { ending_count = sizeof endings / sizeof *endings };

static void end_in_flight(void) {
	for (int i = 0; i < ending_count; i++) {
		int status = child_run(ends_in_flight, (void *)(intptr_t)endings[i].how);
		clt_say(endings[i].name, "%d", status);
		CHECK(status == endings[i].status);
	}
}

// A thread ends the process while another one is inside calls. With exit() the library's handlers
// run concurrently with its calls.
static void end_from_thread(void) {
	for (int i = by_exit; i < ending_count; i++)
		for (int k = 0; k < 3; k++) {
			int status = child_run(ends_from_thread, (void *)(intptr_t)endings[i].how);
			if (status != endings[i].status)
				clt_fail(__FILE__, __LINE__, "%s: %d", endings[i].name, status);
		}
}

static void *blocked_finish(void *nothing) {
	(void)nothing;
	clFinish(used.queue);
	return NULL;
}

static int ends_while_blocked(void *how) {
	pthread_t thread;
	cl_int code;
	if (work_open(&used) != CL_SUCCESS)
		return 1;
	cl_event never = clCreateUserEvent(used.context, &code);
	if (clEnqueueMarkerWithWaitList(used.queue, 1, &never, NULL) != CL_SUCCESS)
		return 2;
	if (pthread_create(&thread, NULL, blocked_finish, NULL) != 0)
		return 3;
	usleep(50000);
	end((enum ending)(intptr_t)how);
	return 31;
}

// The process ends while a thread waits for an event that never completes.
static void end_while_blocked(void) {
	for (int i = 0; i < ending_count; i++) {
		int status = child_run(ends_while_blocked, (void *)(intptr_t)endings[i].how);
		clt_say(endings[i].name, "%d", status);
		CHECK(status == endings[i].status);
	}
}

static void at_exit_work(void) {
	char text[64];
	cl_platform_id platform;
	clGetPlatformIDs(1, &platform, NULL);
	clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof text, text, NULL);
	work_round(&used, 3);
	clFinish(used.queue);
	work_close(&used);
}

static int exits_with_handler(void *late) {
	if (!late)
		atexit(at_exit_work);
	if (work_open(&used) != CL_SUCCESS || work_round(&used, 1) != CL_SUCCESS)
		return 1;
	if (late)
		atexit(at_exit_work);
	return 31;
}

static void exit_handler_early(void) { child_must(31, exits_with_handler, NULL); }

static void exit_handler_late(void) { child_must(31, exits_with_handler, (void *)1); }

static bool destroy_used;

__attribute__((destructor)) static void destroy(void) {
	if (destroy_used)
		at_exit_work();
}

static int exits_with_destructor(void *nothing) {
	(void)nothing;
	destroy_used = true;
	return work_open(&used) == CL_SUCCESS ? 31 : 1;
}

static void exit_destructor(void) { child_must(31, exits_with_destructor, NULL); }

static int leaks(void *nothing) {
	(void)nothing;
	cl_int code;
	if (work_open(&used) != CL_SUCCESS)
		return 1;
	for (cl_uint i = 0; i < 1000; i++) {
		cl_mem buffer = clCreateBuffer(used.context, CL_MEM_READ_WRITE, 4096, NULL, &code);
		cl_event event = NULL;
		cl_kernel kernel = clCreateKernel(used.program, "advance", &code);
		if (clEnqueueFillBuffer(used.queue, buffer, &i, 4, 0, 4096, 0, NULL, &event) != CL_SUCCESS || !kernel)
			return 2;
	}
	return clFinish(used.queue) == CL_SUCCESS ? 31 : 3;
}

static void leak(void) { child_must(31, leaks, NULL); }

static void *second_life(void *nothing) {
	(void)nothing;
	exit(work_round(&used, 1) == CL_SUCCESS ? 31 : 2);
}

static int main_thread_ends(void *nothing) {
	(void)nothing;
	pthread_t thread;
	if (work_open(&used) != CL_SUCCESS || pthread_create(&thread, NULL, second_life, NULL) != 0)
		return 1;
	pthread_exit(NULL);
}

static void main_thread_exits(void) { child_must(31, main_thread_ends, NULL); }

// --- files --------------------------------------------------------------------------------------

static void close_from_3(void) {
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
}

static int closes_before(void *nothing) {
	(void)nothing;
	close_from_3();
	return work_all(5) == CL_SUCCESS ? 0 : 1;
}

static void close_before(void) { child_must(0, closes_before, NULL); }

enum { foreign_count = 24 };

// foreign opens pipes and files on the numbers that were just closed. Each pipe contains a byte,
// each file is empty.
static void foreign(int pipes[][2], int *files) {
	for (int i = 0; i < foreign_count; i++) {
		char name[64];
		snprintf(name, sizeof name, "/tmp/cltest-%d-%d", (int)getpid(), i);
		files[i] = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
		unlink(name);
		if (pipe2(pipes[i], O_NONBLOCK) != 0 || write(pipes[i][1], "x", 1) != 1 || files[i] < 0)
			_exit(50);
	}
}

// untouched reports whether the foreign files were neither read, written, truncated nor closed.
static bool untouched(int pipes[][2], const int *files) {
	for (int i = 0; i < foreign_count; i++) {
		char bytes[8];
		struct stat st;
		if (read(pipes[i][0], bytes, sizeof bytes) != 1 || bytes[0] != 'x')
			return false;
		if (fstat(files[i], &st) != 0 || st.st_size != 0 || lseek(files[i], 0, SEEK_CUR) != 0)
			return false;
	}
	return true;
}

static int closes_after(void *exit_too) {
	int pipes[foreign_count][2], files[foreign_count];
	if (work_open(&used) != CL_SUCCESS || work_round(&used, 1) != CL_SUCCESS)
		return 1;
	close_from_3();
	foreign(pipes, files);
	for (cl_uint i = 0; i < 5; i++)
		if (work_round(&used, i) == 1) // an error is allowed, wrong bytes are not
			return 2;
	clFinish(used.queue);
	work_all(1);
	if (exit_too)
		work_close(&used);
	return untouched(pipes, files) ? 0 : 3;
}

// A program that closes files that it never opened gets errors, or continues; it never hangs, and
// the library never touches the files that get those numbers afterwards.
static void close_after(void) {
	child_must(0, closes_after, NULL);
	child_must(0, closes_after, (void *)1);
}

static int counts_files(void *nothing) {
	(void)nothing;
	if (work_all(2) != CL_SUCCESS)
		return 1;
	int before = 0, after = 0;
	for (int fd = 0; fd < 1024; fd++)
		before += fcntl(fd, F_GETFD) >= 0;
	for (int i = 0; i < 10; i++)
		if (work_all(2) != CL_SUCCESS)
			return 2;
	for (int fd = 0; fd < 1024; fd++)
		after += fcntl(fd, F_GETFD) >= 0;
	return after == before ? 0 : 3;
}

// Creating and releasing contexts leaves no files open.
static void files_constant(void) { child_must(0, counts_files, NULL); }

static int keeps_files(void *nothing) {
	(void)nothing;
	bool open_before[1024];
	for (int fd = 0; fd < 1024; fd++)
		open_before[fd] = fcntl(fd, F_GETFD) >= 0;
	if (work_open(&used) != CL_SUCCESS || work_round(&used, 1) != CL_SUCCESS)
		return 1;
	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);
		if (!open_before[fd] && flags >= 0 && !(flags & FD_CLOEXEC))
			return 2;
	}
	return 0;
}

// The library's files are not inherited by programs that this one starts.
static void files_kept(void) { child_must(0, keeps_files, NULL); }

// --- the driver's own crash ---------------------------------------------------------------------

// More local memory than the device has: PoCL 3.1 accepts the launch and then aborts its process.
static int kills_driver(void *nothing) {
	(void)nothing;
	cl_int code;
	size_t one = 1;
	const char *source = "kernel void room(local uint *r, global uint *at) { r[get_local_id(0)] = at[0]; at[0] = r[0]; }";
	if (work_open(&used) != CL_SUCCESS)
		return 1;
	cl_program program = clCreateProgramWithSource(used.context, 1, &source, NULL, &code);
	if (clBuildProgram(program, 0, NULL, NULL, NULL, NULL) != CL_SUCCESS)
		return 2;
	cl_kernel kernel = clCreateKernel(program, "room", &code);
	code = clSetKernelArg(kernel, 0, (size_t)1 << 30, NULL);
	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, 1, sizeof used.buffer, &used.buffer);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(used.queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
	if (code == CL_SUCCESS)
		code = clFinish(used.queue);
	if (code == CL_SUCCESS)
		code = work_round(&used, 1);
	call_everything(NULL); // the calls return, with any result
	return code == CL_SUCCESS ? 3 : 0;
}

// The program survives, gets an error, and every later call returns.
static void driver_dies(void) { child_must(0, kills_driver, NULL); }

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"partition_first", partition_first},
		{"first_use_in_child", first_use_in_child},
		{"many_children", many_children},
		{"fork_exits", fork_exits},
		{"fork_calls", fork_calls},
		{"fork_exec", fork_exec},
		{"spawn", spawn},
		{"daemon_uses", daemon_uses},
		{"daemon_used", daemon_used},
		{"fork_in_traffic", fork_in_traffic},
		{"end_in_flight", end_in_flight},
		{"end_from_thread", end_from_thread},
		{"end_while_blocked", end_while_blocked},
		{"exit_handler_early", exit_handler_early},
		{"exit_handler_late", exit_handler_late},
		{"exit_destructor", exit_destructor},
		{"leak", leak},
		{"main_thread_exits", main_thread_exits},
		{"close_before", close_before},
		{"close_after", close_after},
		{"files_constant", files_constant},
		{"files_kept", files_kept},
		{"driver_dies", driver_dies},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
