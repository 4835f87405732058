/* stream.c: the bytes that the worker sends, read by the leader. Layer: session.
 *
 * The worker is not trusted: fields are copied before they are checked, and bytes that violate the
 * protocol end the session.
 */
#include "state.h"

enum { PIECE = 256 << 10 };

static size_t min_size(uint64_t a, size_t b) { return a < b ? (size_t)a : b; }

void stream_corrupt(struct session *s, const char *violation) {
	s->corrupt = 1;
	session_die(s, DEAD_LOST, "the session was ended: the worker sent %s", violation);
}

static const char *close_reason(uint32_t closed) {
	switch (closed) {
	case 1 + RING_DONE:
		return "the worker ended it";
	case 1 + RING_LEASE_LOST:
		return "its lease expired or was revoked";
	case 1 + RING_UNREACHABLE:
		return "the device's node does not answer";
	case 1 + RING_SESSION_LOST:
		return "the worker or the connection to it is gone";
	case 1 + RING_CORRUPT:
		return "its shared memory was damaged";
	default:
		return "something went wrong on the device's node";
	}
}

/* socket_closed polls the socket, which costs system calls, at most once per tick. */
static int socket_closed(struct session *s) {
	int64_t now = now_ms();
	if (now - atomic_load(&s->socket_checked_ms) < TICK_MS)
		return 0;
	atomic_store(&s->socket_checked_ms, now);
	return !socket_alive(s);
}

int session_check_end(struct session *s) {
	if (session_dead(s))
		return 1;
	uint32_t closed = ring_closed(s->ring);
	if (closed)
		session_die(s, DEAD_LOST, "the session was lost: %s", close_reason(closed));
	else if (socket_closed(s))
		session_die(s, DEAD_LOST, "the session was lost: outboard run is gone");
	else
		return 0;
	return 1;
}

/* wait_for_bytes waits for the rest of a message that has begun, while the session is alive. */
static const unsigned char *wait_for_bytes(struct session *s, size_t min, size_t *got) {
	for (;;) {
		const unsigned char *p = ring_next(s->ring, min, got, TICK_MS);
		if (p)
			return p;
		if (session_check_end(s))
			return NULL;
	}
}

int stream_copy(struct session *s, unsigned char *to, struct cursor *c, uint64_t n) {
	while (n > 0) {
		size_t got;
		const unsigned char *p = wait_for_bytes(s, min_size(n, s->area / 8), &got);
		if (!p)
			return -1;
		got = min_size(n, min_size(got, PIECE));
		if (to) {
			memcpy(to, p, got);
			to += got;
		} else if (c) {
			layout_scatter(c, p, got);
		}
		ring_release(s->ring, got);
		n -= got;
	}
	return 0;
}

static int skip_padding(struct session *s, uint64_t bulk) { return stream_copy(s, NULL, NULL, wire_padded(bulk & 7) - (bulk & 7)); }

int stream_bulk(struct session *s, uint64_t bulk, const struct layout *into, uint64_t have) {
	struct cursor c = cursor_at(into, have);
	return stream_copy(s, NULL, into ? &c : NULL, bulk) != 0 ? -1 : skip_padding(s, bulk);
}
