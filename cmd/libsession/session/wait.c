/* wait.c: threads that wait for a reply or a condition, and read meanwhile. Layer: session.
 *
 * A thread that waits becomes the leader when there is none; otherwise it sleeps until the leader
 * wakes it. The handlers of a session's death also run here. */
#include "state.h"

#include <errno.h>

enum { FOLLOWER_WAIT_MS = 1000, BATCH = 64 };

static struct track *remove_all_tracks(struct session *s) {
	pthread_mutex_lock(&s->lock);
	struct track *all = s->tracks;
	s->tracks = NULL;
	s->tracks_end = &s->tracks;
	pthread_mutex_unlock(&s->lock);
	return all;
}

void session_report_death(struct session *s) {
	/* Messages received before the end are delivered first: they may complete a track. */
	if (leader_try(s)) {
		receive_deferred(s);
		leader_resign(s);
	}
	session_thread.dispatching++;
	for (struct track *t = remove_all_tracks(s), *next; t; t = next) {
		next = t->next;
		t->done(t, s->options.dead_status);
	}
	if (atomic_exchange(&s->death_reported, 1) == 0 && s->options.died)
		s->options.died(s->options.user);
	session_thread.dispatching--;
}

static int satisfied(struct waiter *w) { return waiter_done(w) || (w->ready && w->ready(w->arg)); }

/* lead_until reads messages until w is satisfied or the session is dead. */
static void lead_until(struct session *s, struct waiter *w) {
	s->leader = w;
	receive_deferred(s);
	while (!satisfied(w))
		if (!receive_one(s, TICK_MS, 1) && session_check_end(s))
			break;
	s->leader = NULL;
}

/* wait_for_leader sleeps until the leader changes w->bell from the value that was read before w was
 * last checked. */
static void wait_for_leader(struct session *s, struct waiter *w, uint32_t bell) {
	pthread_mutex_lock(&s->lock);
	int busy = s->leading;
	if (busy && s->listener_leads && s->ring)
		ring_kick(s->ring); /* the listener resigns, and this thread reads its reply itself */
	pthread_mutex_unlock(&s->lock);
	if (busy)
		futex_sleep(&w->bell, bell, FOLLOWER_WAIT_MS);
}

/* reply_impossible returns 0 for a call whose reply the leader is copying: such a call is no longer
 * in the list, and must be waited for. */
static int reply_impossible(struct session *s, struct waiter *w) {
	if (!session_dead(s))
		return 0;
	pthread_mutex_lock(&s->lock);
	int listed = w->at != NULL;
	pthread_mutex_unlock(&s->lock);
	return listed;
}

void waiter_wait(struct session *s, struct waiter *w) {
	for (;;) {
		uint32_t bell = atomic_load(&w->bell);
		if (satisfied(w) || reply_impossible(s, w))
			break;
		if (!session_dead(s) && leader_try(s)) {
			if (!session_dead(s))
				lead_until(s, w);
			leader_resign(s);
			continue;
		}
		wait_for_leader(s, w, bell);
	}
	if (!waiter_done(w)) { /* otherwise the leader has unlinked it */
		pthread_mutex_lock(&s->lock);
		waiter_unlink(w);
		pthread_mutex_unlock(&s->lock);
	}
	if (session_dead(s) && atomic_load(&s->death) != DEAD_FORKED)
		session_report_death(s);
}

int32_t session_wait_until(struct session *s, int (*ready)(void *), void *arg) {
	if (ready(arg))
		return 0;
	int saved = errno;
	struct waiter w = {.ready = ready, .arg = arg};
	uint64_t begin = record_current ? record_now() : 0;
	if (!session_dead(s)) {
		waiter_add(s, &w);
		waiter_wait(s, &w);
	} else if (atomic_load(&s->death) != DEAD_FORKED) {
		session_report_death(s);
	}
	if (record_current) {
		record_current->head.flags |= RECORD_WAITED;
		record_current->blocked += record_now() - begin;
	}
	errno = saved;
	return ready(arg) ? 0 : s->options.dead_status;
}

void session_wake(struct session *s) {
	waiters_recheck(s);
	pthread_mutex_lock(&s->lock);
	if (s->leading && s->ring)
		ring_kick(s->ring); /* the leader may wait for a condition itself */
	pthread_mutex_unlock(&s->lock);
}

void session_poll(struct session *s) {
	int saved = errno;
	if (session_dead(s)) {
		if (!atomic_load(&s->death_reported) && atomic_load(&s->death) != DEAD_FORKED)
			session_report_death(s);
	} else if (leader_try(s)) {
		if (!session_dead(s)) {
			receive_deferred(s);
			for (int n = 0; n < BATCH && receive_one(s, 0, 1); n++)
				;
			(void)session_check_end(s);
		}
		leader_resign(s);
	}
	errno = saved;
}

void receive_while_sending(struct session *s) {
	if (!leader_try(s))
		return;
	for (int n = 0; n < BATCH && receive_one(s, 0, 0); n++)
		;
	leader_resign(s);
}
