// Signals: storms of them on the current stack, masks changed at any time, sigwait, stop and
// continue. Every case runs in a child, so that its masks and handlers do not reach the next case.
#define _GNU_SOURCE
#include "child.h"
#include "work.h"

#include <alloca.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int ticks;

// count_tick uses as much stack as a handler that prints.
static void count_tick(int signal) {
	char *room = alloca(6000);
	memset(room, signal, 6000);
	__asm__ volatile("" ::"r"(room) : "memory");
	atomic_fetch_add(&ticks, 1);
}

static void handle(int signal, int flags) {
	struct sigaction action = {.sa_handler = count_tick, .sa_flags = flags};
	sigaction(signal, &action, NULL);
}

static void tick_every(int microseconds) {
	struct itimerval every = {{0, microseconds}, {0, microseconds}};
	setitimer(ITIMER_REAL, &every, NULL);
}

static int rounds_until_ticks(struct work *w, int wanted) {
	uint64_t until = clt_now() + 10000000000u;
	for (cl_uint i = 0; atomic_load(&ticks) < wanted; i++) {
		cl_int code = work_round(w, i);
		if (code != CL_SUCCESS)
			return 3;
		if (clt_now() > until)
			return 4;
	}
	return 0;
}

static int storm_after(void *flags) {
	struct work w;
	if (work_open(&w) != CL_SUCCESS)
		return 1;
	handle(SIGALRM, (int)(intptr_t)flags);
	tick_every(500);
	int result = rounds_until_ticks(&w, 1000);
	tick_every(0);
	return result ? result : work_close(&w) == CL_SUCCESS ? 0 : 5;
}

static int storm_before(void *flags) {
	struct work w;
	handle(SIGALRM, (int)(intptr_t)flags);
	tick_every(500);
	if (work_open(&w) != CL_SUCCESS)
		return 1;
	return rounds_until_ticks(&w, 1000);
}

static void alarm_restart(void) { child_must(0, storm_after, (void *)SA_RESTART); }

static void alarm_interrupt(void) { child_must(0, storm_after, NULL); }

static void alarm_first(void) { child_must(0, storm_before, NULL); }

static atomic_bool stop;

struct target {
	pthread_t thread;
	struct work work;
	cl_int code;
};

static void *work_until_stop(void *data) {
	struct target *target = data;
	for (cl_uint i = 0; !atomic_load(&stop) && target->code == CL_SUCCESS; i++)
		target->code = work_round(&target->work, i);
	return NULL;
}

static int shoot_threads(void *nothing) {
	(void)nothing;
	struct target targets[4] = {0};
	if (work_open(&targets[0].work) != CL_SUCCESS)
		return 1;
	handle(SIGUSR1, 0); // a compiler in the driver may have installed its own handler
	for (int i = 1; i < 4; i++)
		if (work_share(&targets[i].work, &targets[0].work) != CL_SUCCESS)
			return 2;
	for (int i = 0; i < 4; i++)
		if (pthread_create(&targets[i].thread, NULL, work_until_stop, &targets[i]) != 0)
			return 3;
	for (int i = 0; i < 4000; i++) {
		pthread_kill(targets[i % 4].thread, SIGUSR1);
		usleep(100);
	}
	atomic_store(&stop, true);
	int bad = 0;
	for (int i = 0; i < 4; i++) {
		pthread_join(targets[i].thread, NULL);
		bad += targets[i].code != CL_SUCCESS;
	}
	return bad ? 4 : atomic_load(&ticks) > 0 ? 0 : 5;
}

static void threads_shot(void) { child_must(0, shoot_threads, NULL); }

// A signal that interrupts a long wait in a call is handled at once, not when the call returns.
static int interrupt_wait(void *nothing) {
	(void)nothing;
	struct work w;
	cl_int code;
	if (work_open(&w) != CL_SUCCESS)
		return 1;
	cl_event gate = clCreateUserEvent(w.context, &code);
	if (clEnqueueMarkerWithWaitList(w.queue, 1, &gate, NULL) != CL_SUCCESS)
		return 2;
	signal(SIGALRM, SIG_DFL);
	alarm(1);
	clFinish(w.queue); // never returns
	return 3;
}

static void wait_interrupted(void) { clt_say("status", "%d", child_run(interrupt_wait, NULL)); }

static int wait_for_signal(sigset_t *set, int signal) {
	int got = 0;
	kill(getpid(), signal);
	return sigwait(set, &got) == 0 && got == signal ? 0 : 6;
}

static int block_then_wait(void *late) {
	sigset_t set;
	struct work w;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	if (!late)
		pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (work_open(&w) != CL_SUCCESS || work_round(&w, 1) != CL_SUCCESS)
		return 1;
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (cl_uint i = 0; i < 20; i++) {
		if (wait_for_signal(&set, i % 2 ? SIGTERM : SIGHUP) != 0)
			return 2;
		if (work_round(&w, i) != CL_SUCCESS)
			return 3;
	}
	return work_close(&w) == CL_SUCCESS ? 0 : 4;
}

// Signals that the program blocks in all threads reach its sigwait, and no thread of the library.
static void sigwait_early(void) { child_must(0, block_then_wait, NULL); }

// The same when the program blocks them only after it has used OpenCL.
static void sigwait_late(void) { child_must(0, block_then_wait, (void *)1); }

static int block_all(void *nothing) {
	(void)nothing;
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	return work_all(10) == CL_SUCCESS ? 0 : 1;
}

static void all_blocked(void) { child_must(0, block_all, NULL); }

static int keep_settings(void *nothing) {
	(void)nothing;
	sigset_t before, after;
	struct sigaction actions[32], now;
	static const int kept[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGURG, SIGPROF, SIGABRT,
		SIGSEGV, SIGBUS, SIGTRAP, SIGILL};
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
		sigaction(kept[i], NULL, &actions[i]);
	if (work_all(5) != CL_SUCCESS)
		return 1;
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	for (int signal = 1; signal < 32; signal++)
		if (sigismember(&before, signal) != sigismember(&after, signal))
			return 2;
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
		sigaction(kept[i], NULL, &now);
		if (now.sa_handler != actions[i].sa_handler || now.sa_flags != actions[i].sa_flags)
			return 3;
	}
	return 0;
}

// OpenCL leaves the thread's mask and the process's handlers unchanged.
static void settings_kept(void) { child_must(0, keep_settings, NULL); }

static int work_for_long(void *nothing) {
	(void)nothing;
	return work_all(4000) == CL_SUCCESS ? 0 : 1;
}

// A program may be stopped and continued at any time.
static void stopped(void) {
	pid_t child = child_start(work_for_long, NULL);
	for (int i = 0; i < 10; i++) {
		usleep(10000);
		kill(child, SIGSTOP);
		usleep(10000);
		kill(child, SIGCONT);
	}
	CHECK(child_wait(child) == 0);
}

static int ignore_children(void *nothing) {
	(void)nothing;
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_DFL);
	return work_all(5) == CL_SUCCESS ? 0 : 1;
}

static void children_ignored(void) { child_must(0, ignore_children, NULL); }

static int alternate_stack(void *nothing) {
	(void)nothing;
	stack_t own = {.ss_sp = malloc(65536), .ss_size = 65536}, now;
	if (sigaltstack(&own, NULL) != 0)
		return 7;
	int result = storm_after((void *)SA_ONSTACK);
	if (sigaltstack(NULL, &now) != 0 || now.ss_sp != own.ss_sp)
		return 8;
	return result;
}

// A program with an alternate stack for its handlers still has it afterwards.
static void alternate_stack_kept(void) { child_must(0, alternate_stack, NULL); }

int main(int argc, char **argv) {
	static const struct clt_case cases[] = {
		{"alarm_restart", alarm_restart},
		{"alarm_interrupt", alarm_interrupt},
		{"alarm_first", alarm_first},
		{"threads_shot", threads_shot},
		{"wait_interrupted", wait_interrupted},
		{"sigwait_early", sigwait_early},
		{"sigwait_late", sigwait_late},
		{"all_blocked", all_blocked},
		{"settings_kept", settings_kept},
		{"stopped", stopped},
		{"children_ignored", children_ignored},
		{"alternate_stack_kept", alternate_stack_kept},
		{NULL, NULL},
	};
	return clt_main(argc, argv, cases);
}
