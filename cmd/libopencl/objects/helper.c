/* helper.c: threads that wait for a build on behalf of the program. Layer: objects. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "library.h"
#include "program.h"

#include <signal.h>
#include <time.h>

struct helper {
	struct helper *next;
	pthread_t thread;
	_Atomic int done;
	void (*run)(void *);
	void *argument;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct helper *helpers;

static void *helper_main(void *argument) {
	struct helper *h = argument;
	links_share(); /* the worker must not block on behalf of one thread */
	h->run(h->argument);
	atomic_store(&h->done, 1);
	return NULL;
}

int thread_start_blocked(pthread_t *thread, void *(*run)(void *), void *argument) {
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int status = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return status;
}

/* Threads are joined, not detached: none may execute the library's code when it is unloaded. */
static void reap(const struct timespec *until) {
	for (struct helper **at = &helpers; *at;) {
		struct helper *h = *at;
		int gone = atomic_load(&h->done) && pthread_join(h->thread, NULL) == 0;
		if (!gone && until)
			gone = pthread_timedjoin_np(h->thread, NULL, until) == 0;
		if (gone)
			*at = h->next, free(h);
		else
			at = &h->next;
	}
}

int helper_start(void (*run)(void *), void *argument) {
	struct helper *h = calloc(1, sizeof *h);
	if (!h)
		return -1;
	h->run = run;
	h->argument = argument;
	pthread_mutex_lock(&lock);
	reap(NULL);
	int status = thread_start_blocked(&h->thread, helper_main, h);
	if (status == 0)
		h->next = helpers, helpers = h;
	pthread_mutex_unlock(&lock);
	if (status != 0)
		free(h);
	return status;
}

void helpers_join(void) {
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	pthread_mutex_lock(&lock);
	reap(&until);
	pthread_mutex_unlock(&lock);
}
