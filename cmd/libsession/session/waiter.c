/* waiter.c: the threads that wait for a session, and the leadership among them (leader/followers
 * pattern). Layer: session.
 *
 * One thread at a time, the leader, reads the ring for all. A leader that resigns wakes its
 * successor.
 */
#include "state.h"

int waiter_done(struct waiter *w) { return (atomic_load(&w->bell) & DONE) != 0; }

void waiter_add(struct session *s, struct waiter *w) {
	pthread_mutex_lock(&s->lock);
	w->next = s->waiters;
	w->at = &s->waiters;
	if (w->next)
		w->next->at = &w->next;
	s->waiters = w;
	pthread_mutex_unlock(&s->lock);
}

void waiter_unlink(struct waiter *w) {
	if (!w->at)
		return;
	*w->at = w->next;
	if (w->next)
		w->next->at = w->at;
	w->at = NULL;
}

struct waiter *waiter_detach(struct session *s, uint32_t call) {
	pthread_mutex_lock(&s->lock);
	struct waiter *w = s->waiters;
	while (w && (w->call != call || w->ready))
		w = w->next;
	if (w)
		waiter_unlink(w);
	pthread_mutex_unlock(&s->lock);
	return w;
}

void waiters_recheck(struct session *s) {
	pthread_mutex_lock(&s->lock);
	for (struct waiter *w = s->waiters; w; w = w->next)
		if (w->ready)
			waiter_wake(w);
	pthread_mutex_unlock(&s->lock);
}

int leader_try(struct session *s) {
	pthread_mutex_lock(&s->lock);
	int vacant = !s->leading;
	s->leading = 1;
	pthread_mutex_unlock(&s->lock);
	return vacant;
}

/* listener_needs_wake is called under the session's lock. */
static int listener_needs_wake(struct session *s) { return s->listener_state == LISTENER_RUNS && s->listener_asleep; }

void leader_resign(struct session *s) {
	pthread_mutex_lock(&s->lock);
	s->leading = 0;
	struct waiter *successor = s->waiters;
	while (successor && waiter_done(successor))
		successor = successor->next;
	if (successor)
		waiter_wake(successor);
	int wake_listener = !successor && listener_needs_wake(s);
	pthread_mutex_unlock(&s->lock);
	if (wake_listener)
		listener_wake(s);
}
