/* callback.c: a queue of jobs for the listener thread: calls into the program, and work that a handler must not do.
 * Layer: objects. */
#include "library.h"

struct job {
	struct job *next;
	void (*run)(void *);
	void *arg;
};

static struct {
	pthread_mutex_t lock;
	struct job *first, **end;
	int running; /* a session's listener is at it, and will go on until nothing is left */
} jobs = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = &jobs.first};

int32_t callback_post(struct link *link, void (*run)(void *), void *arg) {
	struct job *j = malloc(sizeof *j);
	if (!j)
		return CL_OUT_OF_HOST_MEMORY;
	*j = (struct job){NULL, run, arg};
	pthread_mutex_lock(&jobs.lock);
	*jobs.end = j;
	jobs.end = &j->next;
	pthread_mutex_unlock(&jobs.lock);
	if (session_listen(link->session) != 0)
		session_shared(link->session); /* no thread to be had: another post may have more luck */
	session_nudge(link->session);
	return 0;
}

/* take returns the next job, or NULL when there is none or another thread is at work. */
static struct job *take(int again) {
	struct job *j = NULL;
	pthread_mutex_lock(&jobs.lock);
	if (again || !jobs.running) {
		j = jobs.first;
		if (j && !(jobs.first = j->next))
			jobs.end = &jobs.first;
		jobs.running = j != NULL;
	}
	pthread_mutex_unlock(&jobs.lock);
	return j;
}

void callback_run_all(void *user) {
	(void)user;
	if (atomic_load(&object_reap_list))
		object_reap();
	for (struct job *j = take(0); j; j = take(1)) {
		j->run(j->arg);
		free(j);
	}
}
