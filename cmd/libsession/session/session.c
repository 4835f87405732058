/* session.c: opens and closes sessions. Layer: session. */
#include "state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLOSE_MS = 200 };

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

static struct session *attach_ring(const struct session_options *options, int memory, char *why, size_t why_size) {
	ring *r = NULL;
	int err = ring_open(memory, &r);
	if (err != 0) {
		snprintf(why, why_size, "the ring that outboard run sent cannot be mapped (%s)", strerror(-err));
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
	struct session *s = attach_ring(options, memory, why, why_size);
	close(memory);
	if (s)
		socket_store(s, fd);
	else
		close(fd);
	errno = saved;
	return s;
}

/* acquire_roles acquires the roles of sender and leader, so that no other thread uses the ring. It
 * returns 0 after CLOSE_MS. */
static int acquire_roles(struct session *s) {
	int64_t deadline = now_ms() + CLOSE_MS;
	while (pthread_mutex_trylock(&s->send) != 0) {
		if (now_ms() > deadline)
			return 0;
		usleep(200);
	}
	while (!leader_try(s)) {
		if (now_ms() > deadline) {
			pthread_mutex_unlock(&s->send);
			return 0;
		}
		usleep(200);
	}
	return 1;
}

/* lock_is_free returns 0 when a lock that is only held for a few instructions stays held: its
 * holder was interrupted by the signal handler that now exits the process. */
static int lock_is_free(pthread_mutex_t *lock) {
	for (int64_t deadline = now_ms() + CLOSE_MS; pthread_mutex_trylock(lock) != 0; usleep(200))
		if (now_ms() > deadline)
			return 0;
	pthread_mutex_unlock(lock);
	return 1;
}

/* At exit other threads may still run. Their later calls find a dead session and usable locks. */
void session_close(struct session *s) {
	int saved = errno;
	if (atomic_load(&s->death) == DEAD_FORKED)
		return;
	if (!lock_is_free(&s->lock)) {
		atomic_store(&s->death, DEAD_CLOSED);
		ring_close(s->ring, RING_DONE);
		return;
	}
	session_die(s, DEAD_CLOSED, NULL);
	listener_stop(s);
	if (s->ring && acquire_roles(s)) {
		pthread_mutex_lock(&s->lock); /* ring_kick is called under it */
		ring *r = s->ring;
		s->ring = NULL;
		pthread_mutex_unlock(&s->lock);
		leader_resign(s);
		pthread_mutex_unlock(&s->send);
		ring_unmap(r);
	}
	pthread_mutex_lock(&s->socket_lock);
	socket_close(s);
	pthread_mutex_unlock(&s->socket_lock);
	errno = saved;
}

/* The child shares the ring's memory with its parent and has none of the parent's threads: it uses
 * neither ring nor locks. */
void session_forked(struct session *s) {
	atomic_store(&s->death, DEAD_FORKED);
	socket_close(s);
}
