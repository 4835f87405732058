/* liveness.c: whether a session is alive, and the thread-local state of its callers.
 * Layer: session.
 *
 * Marking a session dead wakes every waiter; the handlers of the death run later (wait.c), on a
 * thread that may run handlers. */
#include "state.h"

#include <stdarg.h>
#include <stdio.h>

_Thread_local struct thread session_thread;

int session_dead(const struct session *s) { return atomic_load(&s->death) != ALIVE; }

int32_t session_dead_status(const struct session *s) { return s->options.dead_status; }

void session_shared(struct session *s) { atomic_store_explicit(&s->shared, 1, memory_order_relaxed); }

uint64_t session_serial(const struct session *s) {
	(void)s;
	return session_thread.serial;
}

uint64_t session_answered(void) { return session_thread.answered; }

int session_dispatching(void) { return session_thread.dispatching; }

void waiter_wake(struct waiter *w) {
	atomic_fetch_add(&w->bell, 1);
	futex_wake(&w->bell);
}

void listener_wake(struct session *s) {
	atomic_fetch_add(&s->listener_bell, 1);
	futex_wake(&s->listener_bell);
}

static void wake_all(struct session *s) {
	pthread_mutex_lock(&s->lock);
	for (struct waiter *w = s->waiters; w; w = w->next)
		waiter_wake(w);
	pthread_mutex_unlock(&s->lock);
	listener_wake(s);
}

void session_die(struct session *s, enum death cause, const char *format, ...) {
	uint32_t alive = ALIVE;
	if (!atomic_compare_exchange_strong(&s->death, &alive, cause))
		return;
	if (format) {
		char text[512];
		va_list args;
		va_start(args, format);
		vsnprintf(text, sizeof text, format, args);
		va_end(args);
		session_log("%s", text);
	}
	ring_close(s->ring, cause == DEAD_CLOSED ? RING_DONE : RING_SESSION_LOST);
	wake_all(s);
}
