/* session.c: a session's beginning and end. */
#include "state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CLOSE_MS = 200 };

_Thread_local struct thread session_thread;

/* session_say writes one line to the standard error, in one piece. */
void session_say(const char *format, ...) {
	char line[1024] = "outboard: ";
	size_t head = strlen(line);
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line + head, sizeof line - head - 1, format, args);
	va_end(args);
	size_t size = head + (n < 0 ? 0 : (size_t)n);
	if (size > sizeof line - 2)
		size = sizeof line - 2;
	line[size] = '\n';
	int saved = errno;
	(void)!syscall(SYS_write, 2, line, size + 1);
	errno = saved;
}

static struct session *session_new(const struct session_options *options) {
	struct session *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->options = *options;
	s->options.socket = NULL; /* the caller's memory */
	s->socket = -1;
	pthread_mutex_init(&s->socket_lock, NULL);
	pthread_mutex_init(&s->send, NULL);
	pthread_mutex_init(&s->lock, NULL);
	s->tracks_end = &s->tracks;
	s->deferred_end = &s->deferred;
	return s;
}

static struct session *attach(const struct session_options *options, int memory, char *why, size_t why_size) {
	ring *r = NULL;
	int err = ring_open(memory, &r);
	if (err != 0) {
		snprintf(why, why_size, "outboard run gave no ring (%s)", strerror(-err));
		return NULL;
	}
	struct session *s = session_new(options);
	if (!s) {
		ring_unmap(r);
		snprintf(why, why_size, "out of memory");
		return NULL;
	}
	s->ring = r;
	s->area = ring_area(r);
	return s;
}

struct session *session_open(const struct session_options *options, uint32_t *leases, uint64_t *memory_limit, char *why, size_t why_size) {
	int memory, saved = errno;
	int fd = handshake(options->socket, options->lease, &memory, leases, memory_limit, why, why_size);
	if (fd < 0)
		return NULL;
	struct session *s = attach(options, memory, why, why_size);
	close(memory);
	if (s)
		socket_remember(s, fd);
	else
		close(fd);
	errno = saved;
	return s;
}

int session_dead(const struct session *s) { return atomic_load(&s->death) != ALIVE; }

int32_t session_dead_status(const struct session *s) { return s->options.dead_status; }

void session_shared(struct session *s) { atomic_store_explicit(&s->shared, 1, memory_order_relaxed); }

uint64_t session_serial(const struct session *s) {
	(void)s;
	return session_thread.serial;
}

int session_dispatching(void) { return session_thread.dispatching; }

/* ---- death */

static void wake_all(struct session *s) {
	pthread_mutex_lock(&s->lock);
	for (struct waiter *w = s->waiters; w; w = w->next)
		waiter_ring(w);
	pthread_mutex_unlock(&s->lock);
	listener_wake(s);
}

void session_die(struct session *s, enum death how, const char *format, ...) {
	uint32_t alive = ALIVE;
	if (!atomic_compare_exchange_strong(&s->death, &alive, how))
		return;
	if (format) {
		char text[512];
		va_list args;
		va_start(args, format);
		vsnprintf(text, sizeof text, format, args);
		va_end(args);
		session_say("%s", text);
	}
	ring_close(s->ring, how == DEAD_CLOSED ? RING_DONE : RING_SESSION_LOST);
	wake_all(s);
}

static struct track *take_tracks(struct session *s) {
	pthread_mutex_lock(&s->lock);
	struct track *all = s->tracks;
	s->tracks = NULL;
	s->tracks_end = &s->tracks;
	pthread_mutex_unlock(&s->lock);
	return all;
}

void session_bury(struct session *s) {
	/* What came before the end counts: a track may be complete already. */
	if (lead_try(s)) {
		receive_deferred(s);
		lead_leave(s);
	}
	session_thread.dispatching++;
	for (struct track *t = take_tracks(s), *next; t; t = next) {
		next = t->next;
		t->done(t, s->options.dead_status);
	}
	if (atomic_exchange(&s->buried, 1) == 0 && s->options.died)
		s->options.died(s->options.user);
	session_thread.dispatching--;
}

/* ---- the end */

/* seize takes both roles, so that nobody touches the ring any more. 0 when somebody keeps one for too long. */
static int seize(struct session *s) {
	int64_t deadline = now_ms() + CLOSE_MS;
	while (pthread_mutex_trylock(&s->send) != 0) {
		if (now_ms() > deadline)
			return 0;
		usleep(200);
	}
	while (!lead_try(s)) {
		if (now_ms() > deadline) {
			pthread_mutex_unlock(&s->send);
			return 0;
		}
		usleep(200);
	}
	return 1;
}

/* usable is 0 when a lock that is held for instructions only stays held: by the code that a signal handler, which now exits,
 * has interrupted. */
static int usable(pthread_mutex_t *lock) {
	for (int64_t deadline = now_ms() + CLOSE_MS; pthread_mutex_trylock(lock) != 0; usleep(200))
		if (now_ms() > deadline)
			return 0;
	pthread_mutex_unlock(lock);
	return 1;
}

/* At exit other threads may still run and come here later: they find a dead session, and locks that work. */
void session_close(struct session *s) {
	int saved = errno;
	if (atomic_load(&s->death) == DEAD_FORKED)
		return;
	if (!usable(&s->lock)) {
		atomic_store(&s->death, DEAD_CLOSED);
		ring_close(s->ring, RING_DONE);
		return;
	}
	session_die(s, DEAD_CLOSED, NULL);
	listener_stop(s);
	if (s->ring && seize(s)) {
		pthread_mutex_lock(&s->lock); /* ring_kick is called under it */
		ring *r = s->ring;
		s->ring = NULL;
		pthread_mutex_unlock(&s->lock);
		lead_leave(s);
		pthread_mutex_unlock(&s->send);
		ring_unmap(r);
	}
	pthread_mutex_lock(&s->socket_lock);
	socket_drop(s);
	pthread_mutex_unlock(&s->socket_lock);
	errno = saved;
}

/* The child shares the ring's memory with its parent, and has none of its threads: it must touch neither ring nor locks. */
void session_forked(struct session *s) {
	atomic_store(&s->death, DEAD_FORKED);
	socket_drop(s);
}
