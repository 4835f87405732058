/* request.c: messages on their way out. A message that takes up to half of the ring is built in place; a larger body is
 * built on the heap and copied in pieces, and bulk is gathered from the program's memory into whatever is free. */
#include "state.h"

#include <errno.h>
#include <stdlib.h>

/* Pieces of bulk: small enough that the worker begins early, large enough that bells do not count. */
enum { PIECE = 256 << 10, SLICE_MS = 1, SLICE_MAX_MS = 8 };

static size_t least(uint64_t a, size_t b) { return a < b ? (size_t)a : b; }

/* reserve waits for space. Meanwhile it reads what comes in: a worker that can't write does not read either. */
static unsigned char *reserve(struct session *s, size_t min, size_t *got) {
	unsigned char *at = ring_reserve(s->ring, min, got, 0);
	for (int ms = SLICE_MS; !at; ms = ms < SLICE_MAX_MS ? ms * 2 : ms) {
		if (receive_ended(s))
			return NULL;
		receive_aside(s);
		at = ring_reserve(s->ring, min, got, ms);
	}
	return at;
}

static int32_t quit(struct session *s, int32_t status) {
	pthread_mutex_unlock(&s->send);
	return status;
}

/* place finds memory for the message; in the ring also for its bulk when both are small. */
static int32_t place(struct request *r, size_t size) {
	struct session *s = r->s;
	size_t got, half = s->area / 2;
	if (size > half) {
		r->start = r->heap = malloc(size);
		return r->start ? 0 : s->options.memory_status;
	}
	uint64_t bulk = r->bulk < s->area ? wire_padded((size_t)r->bulk) : s->area;
	r->room = size + bulk <= half ? size + (size_t)bulk : size;
	r->start = reserve(s, r->room, &got);
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
	int32_t status = session_dead(s) ? s->options.dead_status : place(r, HEADER + body);
	errno = saved;
	if (status != 0)
		return quit(s, status);
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

/* copy_out writes n bytes as the ring takes them: from memory, or (NULL) from the cursor. */
static int copy_out(struct session *s, const unsigned char *from, struct cursor *c, uint64_t n) {
	while (n > 0) {
		size_t got, want = least(n, s->area / 8);
		unsigned char *to = reserve(s, want, &got);
		if (!to)
			return -1;
		got = least(n, least(got, PIECE));
		if (from) {
			memcpy(to, from, got);
			from += got;
		} else {
			gather(c, to, got);
		}
		ring_commit(s->ring, got);
		n -= got;
	}
	return 0;
}

/* send_inline finishes a message that has its bulk behind it in the ring. */
static void send_inline(struct request *r, struct cursor *c) {
	unsigned char *bulk = r->start + HEADER + r->size;
	size_t n = (size_t)r->bulk, padded = wire_padded(n);
	if (padded > n)
		memset(bulk + padded - 8, 0, 8);
	gather(c, bulk, n);
	ring_commit(r->s->ring, r->room);
}

/* emit sends header, body and bulk, and forgets the heap. */
static int emit(struct request *r, const struct layout *bulk) {
	static const unsigned char zeros[8];
	struct session *s = r->s;
	struct cursor c = {.layout = bulk};
	size_t size = HEADER + r->size;
	s->sent = session_thread.serial = r->serial;
	if (r->room > size || (r->room == size && r->bulk == 0)) {
		send_inline(r, &c);
		return 0;
	}
	int err = 0;
	if (r->heap)
		err = copy_out(s, r->heap, NULL, size);
	else
		ring_commit(s->ring, size);
	free(r->heap);
	if (err == 0)
		err = copy_out(s, NULL, &c, r->bulk);
	return err == 0 ? copy_out(s, zeros, NULL, wire_padded(r->bulk & 7) - (r->bulk & 7)) : err;
}

/* track_add comes before the message, so that its data finds it. */
static void track_add(struct session *s, struct track *t) {
	t->next = NULL;
	pthread_mutex_lock(&s->lock);
	*s->tracks_end = t;
	s->tracks_end = &t->next;
	pthread_mutex_unlock(&s->lock);
}

/* track_take_back is 1 when the track was still there: its done will not be called. */
static int track_take_back(struct session *s, struct track *t) {
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

/* Everything that waits for space may have died meanwhile, between begin and here: then nothing is sent. */
int32_t request_send(struct request *r, const struct layout *bulk) {
	struct session *s = r->s;
	struct track *t = r->track;
	int saved = errno;
	put_header(r, 0, 0);
	if (t) {
		t->serial = r->serial;
		track_add(s, t);
	}
	int err = emit(r, bulk);
	pthread_mutex_unlock(&s->send);
	errno = saved;
	/* A track that the death has taken is told by its done: for the caller the call has then gone out. */
	if (err != 0 && (!t || track_take_back(s, t)))
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
	struct waiter w = {.call = next_call(s), .reply = reply, .into = into};
	put_header(r, FLAG_WANT_REPLY, w.call);
	waiter_add(s, &w);
	(void)emit(r, bulk); /* a failure is a death, which the wait notices */
	pthread_mutex_unlock(&s->send);
	waiter_wait(s, &w);
	errno = saved;
	reply->at = reply->body.data;
	reply->left = reply->body.size;
	return reply->status;
}
