/* request.c: requests to the worker. Layer: session.
 *
 * A message of up to half of the ring is built in place. A larger body is built on the heap and
 * copied in pieces; bulk is gathered from the program's memory into the free space. */
#include "state.h"

#include <errno.h>
#include <stdlib.h>

/* PIECE is small enough that the worker starts early, and large enough to make the cost of
 * signalling negligible. */
enum { PIECE = 256 << 10, SLICE_MS = 1, SLICE_MAX_MS = 8 };

static size_t min_size(uint64_t a, size_t b) { return a < b ? (size_t)a : b; }

/* reserve_space waits for space in the ring and reads meanwhile: a worker whose output is blocked
 * stops reading. */
static unsigned char *reserve_space(struct session *s, size_t min, size_t *got) {
	unsigned char *at = ring_reserve(s->ring, min, got, 0);
	if (at)
		return at;
	uint64_t begin = record_current ? record_now() : 0;
	for (int ms = SLICE_MS; !at; ms = ms < SLICE_MAX_MS ? ms * 2 : ms) {
		if (session_check_end(s))
			return NULL;
		receive_while_sending(s);
		at = ring_reserve(s->ring, min, got, ms);
	}
	if (record_current)
		record_current->blocked += record_now() - begin;
	return at;
}

static int32_t unlock_and_return(struct session *s, int32_t status) {
	pthread_mutex_unlock(&s->send);
	return status;
}

/* allocate_message reserves memory for the message: in the ring, with its bulk when both are small,
 * or on the heap. */
static int32_t allocate_message(struct request *r, size_t size) {
	struct session *s = r->s;
	size_t got, half = s->area / 2;
	if (size > half) {
		r->start = r->heap = malloc(size);
		return r->start ? 0 : s->options.memory_status;
	}
	uint64_t bulk = r->bulk < s->area ? wire_padded((size_t)r->bulk) : s->area;
	r->room = size + bulk <= half ? size + (size_t)bulk : size;
	r->start = reserve_space(s, r->room, &got);
	return r->start ? 0 : s->options.dead_status;
}

int32_t request_begin(struct request *r, struct session *s, uint16_t op, size_t body, uint64_t bulk, struct track *track) {
	if (session_dead(s))
		return s->options.dead_status;
	if (body > MAX_MESSAGE - HEADER || bulk > MAX_BULK)
		return s->options.memory_status;
	int saved = errno;
	pthread_mutex_lock(&s->send);
	*r = (struct request){.s = s, .op = op, .size = body, .bulk = bulk, .track = track};
	int32_t status = session_dead(s) ? s->options.dead_status : allocate_message(r, HEADER + body);
	errno = saved;
	if (status != 0)
		return unlock_and_return(s, status);
	r->serial = s->sent + 1;
	r->at = r->start + HEADER;
	return 0;
}

static void put_header(struct request *r, uint16_t flags, uint32_t call) {
	struct session *s = r->s;
	if (!atomic_load_explicit(&s->shared, memory_order_relaxed))
		flags |= FLAG_ALONE;
	struct header h = {(uint32_t)(HEADER + r->size), r->op, flags, call, 0, r->bulk, r->serial};
	memcpy(r->start, &h, sizeof h);
}

/* copy_to_ring writes n bytes in pieces, from memory or (NULL) from the cursor. */
static int copy_to_ring(struct session *s, const unsigned char *from, struct cursor *c, uint64_t n) {
	while (n > 0) {
		size_t got, want = min_size(n, s->area / 8);
		unsigned char *to = reserve_space(s, want, &got);
		if (!to)
			return -1;
		got = min_size(n, min_size(got, PIECE));
		if (from) {
			memcpy(to, from, got);
			from += got;
		} else {
			layout_gather(c, to, got);
		}
		ring_commit(s->ring, got);
		n -= got;
	}
	return 0;
}

/* commit_inline completes a message whose bulk follows its body in the ring. */
static void commit_inline(struct request *r, struct cursor *c) {
	unsigned char *bulk = r->start + HEADER + r->size;
	size_t n = (size_t)r->bulk, padded = wire_padded(n);
	if (padded > n)
		memset(bulk + padded - 8, 0, 8);
	layout_gather(c, bulk, n);
	ring_commit(r->s->ring, r->room);
}

/* record_sent adds a sent message to the record of the thread's call, and returns the time; 0 when
 * there is no record. */
static uint64_t record_sent(const struct request *r) {
	struct record_call *c = record_current;
	if (!c)
		return 0;
	uint64_t now = record_now(), in_call = now - c->begin;
	c->head.flags |= RECORD_SENT;
	c->head.link = (uint8_t)r->s->options.lease;
	c->forward += HEADER + r->size + wire_padded(r->bulk);
	c->serial = r->serial;
	c->encode = in_call > c->blocked ? in_call - c->blocked : 0;
	if (r->track)
		c->backward += HEADER + 16 + wire_padded(layout_size(&r->track->into));
	return now;
}

/* record_received adds a reply, for which the thread has waited since `sent`, to that record. */
static void record_received(const struct reply *reply, const struct layout *into, uint64_t sent) {
	struct record_call *c = record_current;
	if (!c)
		return;
	c->head.flags |= RECORD_WAITED;
	c->blocked += record_now() - sent;
	c->backward += HEADER + reply->body.size + (into ? wire_padded(layout_size(into)) : 0);
}

/* write_message sends header, body and bulk, and frees the heap memory. */
static int write_message(struct request *r, const struct layout *bulk) {
	static const unsigned char zeros[8];
	struct session *s = r->s;
	struct cursor c = {.layout = bulk};
	size_t size = HEADER + r->size;
	s->sent = session_thread.serial = r->serial;
	if (r->room > size || (r->room == size && r->bulk == 0)) {
		commit_inline(r, &c);
		return 0;
	}
	int err = 0;
	if (r->heap)
		err = copy_to_ring(s, r->heap, NULL, size);
	else
		ring_commit(s->ring, size);
	free(r->heap);
	if (err == 0)
		err = copy_to_ring(s, NULL, &c, r->bulk);
	return err == 0 ? copy_to_ring(s, zeros, NULL, wire_padded(r->bulk & 7) - (r->bulk & 7)) : err;
}

/* track_add runs before the message is sent, so that the data finds its track. */
static void track_add(struct session *s, struct track *t) {
	t->next = NULL;
	pthread_mutex_lock(&s->lock);
	*s->tracks_end = t;
	s->tracks_end = &t->next;
	pthread_mutex_unlock(&s->lock);
}

/* track_cancel returns 1 when the track was in the list: its done will not be called. */
static int track_cancel(struct session *s, struct track *t) {
	struct track **at;
	pthread_mutex_lock(&s->lock);
	for (at = &s->tracks; *at && *at != t; at = &(*at)->next)
		;
	int found = *at == t;
	if (found && !(*at = t->next))
		s->tracks_end = at;
	pthread_mutex_unlock(&s->lock);
	return found;
}

int32_t request_send(struct request *r, const struct layout *bulk) {
	struct session *s = r->s;
	struct track *t = r->track;
	int saved = errno;
	put_header(r, 0, 0);
	if (t) {
		t->serial = r->serial;
		track_add(s, t);
	}
	int err = write_message(r, bulk);
	pthread_mutex_unlock(&s->send);
	(void)record_sent(r);
	errno = saved;
	/* When session_die has removed the track, its done reports the failure, and the call counts as
	 * sent. */
	if (err != 0 && (!t || track_cancel(s, t)))
		return s->options.dead_status;
	return 0;
}

static uint32_t next_call(struct session *s) {
	if (++s->calls == 0)
		s->calls = 1;
	return s->calls;
}

int32_t request_call(struct request *r, const struct layout *bulk, struct reply *reply, const struct layout *into) {
	struct session *s = r->s;
	int saved = errno;
	*reply = (struct reply){.status = s->options.dead_status};
	struct waiter w = {.call = next_call(s), .reply = reply, .into = into, .serial = r->serial, .implies = session_thread.implies, .implies_arg = session_thread.implies_arg};
	put_header(r, FLAG_WANT_REPLY, w.call);
	waiter_add(s, &w);
	(void)write_message(r, bulk); /* it fails only when the session dies, which ends the wait */
	session_thread.answered = r->serial;
	pthread_mutex_unlock(&s->send);
	uint64_t sent = record_sent(r);
	waiter_wait(s, &w);
	record_received(reply, into, sent);
	errno = saved;
	reply->at = reply->body.data;
	reply->left = reply->body.size;
	return reply->status;
}
