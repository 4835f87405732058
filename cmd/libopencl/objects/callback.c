/* callback.c: a queue of jobs for the listener thread: calls into the program, and work that a
 * handler must not do. Layer: objects. */
#include "library.h"

struct job {
	struct job *next;
	void (*run)(void *);
	void *arg;
};

static struct {
	pthread_mutex_t lock;
	struct job *first, **end;
	int running; /* a listener thread is executing jobs and continues until the queue is empty */
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
		session_shared(link->session); /* no thread could be created: a later post tries again */
	session_nudge(link->session);
	return 0;
}

/* next_job removes the next job; NULL when there is none or another thread is executing jobs. */
static struct job *next_job(int again) {
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
	for (struct job *j = next_job(0); j; j = next_job(1)) {
		j->run(j->arg);
		free(j);
	}
}
