#define _GNU_SOURCE
#include "child.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

pid_t child_start(int (*run)(void *), void *argument) {
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); // a hung child of a hung child ends too
		exit(run(argument));
	}
	CHECK(child > 0);
	return child;
}

int child_wait(pid_t child) {
	uint64_t until = clt_now() + child_patience_s * 1000000000ull;
	int status = 0;
	for (;;) {
		pid_t ended = waitpid(child, &status, WNOHANG);
		if (ended == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (ended < 0 && errno != EINTR)
			return -1;
		if (clt_now() > until)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return child_hung;
}

int child_run(int (*run)(void *), void *argument) { return child_wait(child_start(run, argument)); }

void child_must(int status, int (*run)(void *), void *argument) {
	int got = child_run(run, argument);
	if (got != status)
		clt_fail(__FILE__, __LINE__, "child ended with %d, not %d", got, status);
}

int child_threads(void) {
	int count = 0;
	DIR *folder = opendir("/proc/self/task");
	if (!folder)
		return -1;
	for (struct dirent *entry; (entry = readdir(folder));)
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}
