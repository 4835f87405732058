/* listener.c: the one thread of our own. It reads while nobody else does, and runs what the program must not wait for.
 *
 * A caller that arrives takes the lead over and reads its reply by itself, so that a call costs no hop over this thread. When it
 * leaves again nobody is woken at once: a program that calls once calls again soon. The thread looks every millisecond, and
 * less often the longer others lead; only out of its deepest sleep must it be woken.
 */
#include "state.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { NONE, RUNS, STOP, ENDED };
enum { SHORT_MS = 1, DEEP_MS = 64, STACK = 1 << 20, STOP_MS = 1000 };

void listener_wake(struct session *s) {
	atomic_fetch_add(&s->listener_bell, 1);
	futex_wake(&s->listener_bell);
}

int listener_owed(struct session *s) { return s->listener_state == RUNS && s->listener_deep; }

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

/* serve runs the upper layer's work, unless the session is being closed: then the code may vanish. */
static void serve(struct session *s) {
	if (atomic_exchange(&s->nudged, 0) == 0 || !s->options.listener)
		return;
	pthread_mutex_lock(&s->lock);
	int run = s->listener_state == RUNS;
	s->listener_outside = run;
	pthread_mutex_unlock(&s->lock);
	if (!run)
		return;
	s->options.listener(s->options.user);
	pthread_mutex_lock(&s->lock);
	s->listener_outside = 0;
	pthread_mutex_unlock(&s->lock);
}

/* wanted says that another thread waits and would rather lead. */
static int wanted(struct session *s) {
	pthread_mutex_lock(&s->lock);
	int others = s->waiters != NULL;
	pthread_mutex_unlock(&s->lock);
	return others || atomic_load(&s->nudged) || state(s) != RUNS;
}

static void set_leads(struct session *s, int leads) {
	pthread_mutex_lock(&s->lock);
	s->listener_leads = leads;
	pthread_mutex_unlock(&s->lock);
}

/* read_alone leads while nobody waits. */
static void read_alone(struct session *s) {
	set_leads(s, 1);
	if (!session_dead(s))
		receive_deferred(s);
	while (!session_dead(s) && !wanted(s))
		if (!receive_one(s, TICK_MS, 1) && receive_ended(s))
			break;
	set_leads(s, 0);
}

static void rest(struct session *s, uint32_t bell, int ms) {
	pthread_mutex_lock(&s->lock);
	s->listener_deep = ms > SHORT_MS;
	int vacant = !s->leading && !session_dead(s);
	pthread_mutex_unlock(&s->lock);
	if (!vacant)
		futex_sleep(&s->listener_bell, bell, ms);
	pthread_mutex_lock(&s->lock);
	s->listener_deep = 0;
	pthread_mutex_unlock(&s->lock);
}

static void *listen_thread(void *arg) {
	struct session *s = arg;
	prctl(PR_SET_NAME, "outboard");
	for (int ms = SHORT_MS; state(s) == RUNS;) {
		uint32_t bell = atomic_load(&s->listener_bell);
		serve(s);
		if (session_dead(s)) {
			session_bury(s);
			serve(s);
			rest(s, bell, TICK_MS * 10);
		} else if (lead_try(s)) {
			read_alone(s);
			lead_leave(s);
			ms = SHORT_MS;
		} else {
			rest(s, bell, ms);
			ms = ms < DEEP_MS ? ms * 2 : DEEP_MS;
		}
	}
	pthread_mutex_lock(&s->lock);
	s->listener_state = ENDED;
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int start(struct session *s) {
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
	uint32_t death = atomic_load(&s->death); /* who was lost may still have callbacks to hear */
	if (s->listener_state == NONE && death != DEAD_CLOSED && death != DEAD_FORKED) {
		s->listener_state = RUNS; /* before it looks */
		err = start(s);
		if (err != 0)
			s->listener_state = NONE;
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

/* listener_stop waits for the thread, unless it is the caller or runs the program's code: then it is left behind. */
void listener_stop(struct session *s) {
	pthread_mutex_lock(&s->lock);
	int runs = s->listener_state == RUNS;
	if (runs)
		s->listener_state = STOP;
	pthread_mutex_unlock(&s->lock);
	if (!runs || pthread_equal(s->listener, pthread_self()))
		return;
	listener_wake(s);
	for (int64_t deadline = now_ms() + STOP_MS; now_ms() < deadline; usleep(200)) {
		pthread_mutex_lock(&s->lock);
		int gone = s->listener_state == ENDED, outside = s->listener_outside;
		pthread_mutex_unlock(&s->lock);
		if (gone) {
			pthread_join(s->listener, NULL);
			return;
		}
		if (outside)
			return;
	}
}
