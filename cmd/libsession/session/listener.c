/* listener.c: the library's own thread, which reads while no other thread does and runs the
 * program's callbacks. Layer: session.
 *
 * A calling thread takes the leadership from the listener and reads its own reply, so that a call
 * costs no thread switch. When the caller resigns, the listener is not woken at once, because
 * another call is likely to follow: it polls every millisecond, and with exponential back-off while
 * other threads lead; a longer sleep must be interrupted by a wake-up. */
#include "state.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MIN_SLEEP_MS = 1, MAX_SLEEP_MS = 64, STACK = 1 << 20, STOP_MS = 1000 };

void session_nudge(struct session *s) {
	atomic_store(&s->nudged, 1);
	listener_wake(s);
	pthread_mutex_lock(&s->lock);
	if (s->listener_leads && s->ring)
		ring_kick(s->ring);
	pthread_mutex_unlock(&s->lock);
}

static int state(struct session *s) {
	pthread_mutex_lock(&s->lock);
	int now = s->listener_state;
	pthread_mutex_unlock(&s->lock);
	return now;
}

/* run_callbacks runs options.listener, unless the session is being closed: the program's code may
 * then be unmapped. */
static void run_callbacks(struct session *s) {
	if (atomic_exchange(&s->nudged, 0) == 0 || !s->options.listener)
		return;
	pthread_mutex_lock(&s->lock);
	int run = s->listener_state == LISTENER_RUNS;
	s->listener_in_callback = run;
	pthread_mutex_unlock(&s->lock);
	if (!run)
		return;
	s->options.listener(s->options.user);
	pthread_mutex_lock(&s->lock);
	s->listener_in_callback = 0;
	pthread_mutex_unlock(&s->lock);
}

/* must_yield returns 1 when another thread waits, callbacks are due, or the thread must stop. */
static int must_yield(struct session *s) {
	pthread_mutex_lock(&s->lock);
	int others = s->waiters != NULL;
	pthread_mutex_unlock(&s->lock);
	return others || atomic_load(&s->nudged) || state(s) != LISTENER_RUNS;
}

static void set_leads(struct session *s, int leads) {
	pthread_mutex_lock(&s->lock);
	s->listener_leads = leads;
	pthread_mutex_unlock(&s->lock);
}

/* lead_while_idle reads while no other thread waits. */
static void lead_while_idle(struct session *s) {
	set_leads(s, 1);
	if (!session_dead(s))
		receive_deferred(s);
	while (!session_dead(s) && !must_yield(s))
		if (!receive_one(s, TICK_MS, 1) && session_check_end(s))
			break;
	set_leads(s, 0);
}

static void sleep_until_needed(struct session *s, uint32_t bell, int ms) {
	pthread_mutex_lock(&s->lock);
	s->listener_asleep = ms > MIN_SLEEP_MS;
	int leaderless = !s->leading && !session_dead(s);
	pthread_mutex_unlock(&s->lock);
	if (!leaderless)
		futex_sleep(&s->listener_bell, bell, ms);
	pthread_mutex_lock(&s->lock);
	s->listener_asleep = 0;
	pthread_mutex_unlock(&s->lock);
}

static void *listen_thread(void *arg) {
	struct session *s = arg;
	prctl(PR_SET_NAME, "outboard");
	for (int ms = MIN_SLEEP_MS; state(s) == LISTENER_RUNS;) {
		uint32_t bell = atomic_load(&s->listener_bell);
		run_callbacks(s);
		if (session_dead(s)) {
			session_report_death(s);
			run_callbacks(s);
			sleep_until_needed(s, bell, TICK_MS * 10);
		} else if (leader_try(s)) {
			lead_while_idle(s);
			leader_resign(s);
			ms = MIN_SLEEP_MS;
		} else {
			sleep_until_needed(s, bell, ms);
			ms = ms < MAX_SLEEP_MS ? ms * 2 : MAX_SLEEP_MS;
		}
	}
	pthread_mutex_lock(&s->lock);
	s->listener_state = LISTENER_ENDED;
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int start_thread(struct session *s) {
	sigset_t all, old;
	pthread_attr_t attributes;
	int err = pthread_attr_init(&attributes);
	if (err != 0)
		return err;
	pthread_attr_setstacksize(&attributes, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&s->listener, &attributes, listen_thread, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return err;
}

int session_listen(struct session *s) {
	session_shared(s);
	int err = 0;
	pthread_mutex_lock(&s->lock);
	uint32_t death = atomic_load(&s->death); /* a lost session may still have callbacks to run */
	if (s->listener_state == LISTENER_NONE && death != DEAD_CLOSED && death != DEAD_FORKED) {
		s->listener_state = LISTENER_RUNS; /* before the thread checks it */
		err = start_thread(s);
		if (err != 0)
			s->listener_state = LISTENER_NONE;
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

/* listener_stop waits for the thread to end, unless it is the calling thread or is running the
 * program's code. */
void listener_stop(struct session *s) {
	pthread_mutex_lock(&s->lock);
	int runs = s->listener_state == LISTENER_RUNS;
	if (runs)
		s->listener_state = LISTENER_STOPPING;
	pthread_mutex_unlock(&s->lock);
	if (!runs || pthread_equal(s->listener, pthread_self()))
		return;
	listener_wake(s);
	for (int64_t deadline = now_ms() + STOP_MS; now_ms() < deadline; usleep(200)) {
		pthread_mutex_lock(&s->lock);
		int gone = s->listener_state == LISTENER_ENDED, in_callback = s->listener_in_callback;
		pthread_mutex_unlock(&s->lock);
		if (gone) {
			pthread_join(s->listener, NULL);
			return;
		}
		if (in_callback)
			return;
	}
}
