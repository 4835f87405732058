/* receive.c: the messages that the leader reads: replies for the waiting threads, notices for the
 * handlers. Layer: session.
 *
 * A notice that arrives where no handler may run is copied and deferred until a thread that may run
 * handlers leads.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>

static int receive_body(struct session *s, struct reply *r, size_t size) {
	if (size == 0)
		return 0;
	r->body.size = size;
	r->body.data = size <= sizeof r->room ? r->room : malloc(size);
	if (!r->body.data) {
		session_die(s, DEAD_LOST, "the session was ended: no memory for a reply of %zu bytes", size);
		return -1;
	}
	return stream_copy(s, r->body.data, NULL, size);
}

/* fits checks the size of bulk data: a success carries exactly the requested bytes, in one or
 * several messages; a failure carries none. */
static int fits(const struct header *h, const struct layout *into, uint64_t have, int32_t status) {
	uint64_t left = layout_size(into) - have;
	if (h->flags & FLAG_MORE)
		return status == 0 && h->bulk > 0 && h->bulk < left;
	return h->bulk == (status == 0 ? left : 0);
}

static int is_data_missing(struct session *s, uint64_t before, track_match *match, const void *arg) {
	pthread_mutex_lock(&s->lock);
	const struct track *t = s->tracks;
	while (t && t->serial < before && !match(t, before, arg))
		t = t->next;
	int missing = t && t->serial < before;
	pthread_mutex_unlock(&s->lock);
	return missing;
}

int session_require_data(struct session *s, uint64_t before, track_match *match, const void *arg) {
	if (!is_data_missing(s, before, match, arg))
		return 0;
	stream_corrupt(s, "the end of a read before its data");
	return -1;
}

void session_each_track(struct session *s, void (*visit)(struct track *, void *arg), void *arg) {
	pthread_mutex_lock(&s->lock);
	for (struct track *t = s->tracks; t; t = t->next)
		visit(t, arg);
	pthread_mutex_unlock(&s->lock);
}

void session_expect_data(track_match *match, const void *arg) {
	session_thread.implies = match;
	session_thread.implies_arg = arg;
}

static int fill_reply(struct session *s, struct waiter *w, const struct header *h) {
	if (w->implies && h->status == 0 && session_require_data(s, w->serial, w->implies, w->implies_arg) != 0)
		return -1;
	if (receive_body(s, w->reply, h->size - HEADER) != 0)
		return -1;
	if (!fits(h, w->into, w->have, h->status)) {
		stream_corrupt(s, "a reply of the wrong size");
		return -1;
	}
	uint64_t have = w->have;
	w->have += h->bulk;
	return stream_bulk(s, h->bulk, w->into, have);
}

static int receive_reply(struct session *s, const struct header *h) {
	struct waiter *w = waiter_detach(s, h->call);
	if (!w) {
		stream_corrupt(s, "a reply to an unknown call");
		return -1;
	}
	int err = fill_reply(s, w, h);
	if (err == 0 && h->flags & FLAG_MORE) {
		waiter_add(s, w);
		return 0;
	}
	if (err == 0) {
		w->reply->status = h->status;
	} else {
		reply_free(w->reply);
		*w->reply = (struct reply){.status = s->options.dead_status};
	}
	/* Once DONE is set, the waiter's stack frame may have been reused. The wake-up uses only its
	 * address. */
	int own = w == s->leader;
	_Atomic uint32_t *bell = &w->bell;
	atomic_fetch_or(bell, DONE);
	if (!own)
		futex_wake(bell);
	return err;
}

static void queue_deferred(struct session *s, struct deferred *d) {
	d->next = NULL;
	s->deferred_bytes += sizeof *d + d->size + d->bulk;
	*s->deferred_end = d;
	s->deferred_end = &d->next;
	atomic_store(&s->has_deferred, 1);
	listener_wake(s);
}

static void run_handler(struct session *s, struct deferred *d) {
	struct notice n = {d->op, d->body, d->size, d->bulk};
	session_thread.dispatching++;
	if (d->track)
		d->track->done(d->track, d->track->status);
	else
		s->options.notice(s->options.user, &n);
	session_thread.dispatching--;
}

/* receive_deferred runs the handlers of the notices for which none could run on arrival. The leader
 * calls it before it reads a new message. */
void receive_deferred(struct session *s) {
	if (!atomic_load_explicit(&s->has_deferred, memory_order_relaxed))
		return;
	while (s->deferred) {
		struct deferred *d = s->deferred;
		if (!(s->deferred = d->next))
			s->deferred_end = &s->deferred;
		s->deferred_bytes -= sizeof *d + d->size + d->bulk;
		s->bulk_data = d->bulk_data;
		run_handler(s, d);
		s->bulk_data = NULL;
		free(d->bulk_data);
		free(d);
	}
	atomic_store(&s->has_deferred, 0);
	waiters_recheck(s);
}

void notice_bulk(struct session *s, const struct notice *n, const struct layout *into) {
	if (s->bulk_data) {
		struct cursor c = {.layout = into};
		if (into && layout_size(into) == n->bulk)
			layout_scatter(&c, s->bulk_data, n->bulk);
		return;
	}
	if (s->bulk_left == 0)
		return;
	s->bulk_left = 0;
	if (into && layout_size(into) != n->bulk)
		stream_corrupt(s, "a notice of the wrong size");
	else
		(void)stream_bulk(s, n->bulk, into, 0);
}

static struct track *remove_track(struct session *s, uint64_t serial) {
	pthread_mutex_lock(&s->lock);
	struct track **at = &s->tracks, *t;
	while ((t = *at) && t->serial != serial)
		at = &t->next;
	if (t && !(*at = t->next))
		s->tracks_end = at;
	pthread_mutex_unlock(&s->lock);
	return t;
}

/* return_track puts a track whose data is incomplete back into the list, in the order of serials. It
 * returns 0 when the session has died, and nothing would remove the track again. */
static int return_track(struct session *s, struct track *t) {
	pthread_mutex_lock(&s->lock);
	int dead = session_dead(s);
	if (!dead) {
		struct track **at = &s->tracks;
		while (*at && (*at)->serial < t->serial)
			at = &(*at)->next;
		if (!(t->next = *at))
			s->tracks_end = &t->next;
		*at = t;
	}
	pthread_mutex_unlock(&s->lock);
	return !dead;
}

/* receive_data copies a track's data to its destination. It returns 1 when the caller must free d,
 * 0 when d is deferred, -1 when the stream is broken. */
static int receive_data(struct session *s, const struct header *h, struct deferred *d, int dispatch) {
	struct reply fields = {.at = d->body, .left = d->size};
	uint64_t serial = get_word(&fields);
	int32_t status = (int32_t)get_word(&fields);
	struct track *t = fields.bad ? NULL : remove_track(s, serial);
	if (!t) {
		stream_corrupt(s, "data of an unknown read");
		return -1;
	}
	int err = 0;
	if (!fits(h, &t->into, t->have, status)) {
		stream_corrupt(s, "data of the wrong size");
		err = -1;
	} else {
		err = stream_bulk(s, h->bulk, h->bulk ? &t->into : NULL, t->have);
		t->have += h->bulk;
	}
	if (err == 0 && h->flags & FLAG_MORE) {
		if (return_track(s, t))
			return 1;
		err = -1;
	}
	t->status = err == 0 ? status : s->options.dead_status;
	d->track = t;
	d->bulk = 0; /* received above */
	if (dispatch)
		run_handler(s, d);
	else
		queue_deferred(s, d);
	return dispatch ? 1 : 0;
}

static int defer(struct session *s, const struct header *h, struct deferred *d) {
	if (h->bulk > MAX_DEFERRED || s->deferred_bytes + h->bulk + d->size > MAX_DEFERRED) {
		stream_corrupt(s, "too many notices");
		return -1;
	}
	if (h->bulk != 0) {
		d->bulk_data = malloc(h->bulk);
		if (!d->bulk_data) {
			session_die(s, DEAD_LOST, "the session was ended: no memory for a notice of %llu bytes", (unsigned long long)h->bulk);
			return -1;
		}
		if (stream_copy(s, d->bulk_data, NULL, h->bulk) != 0 || stream_copy(s, NULL, NULL, wire_padded(h->bulk & 7) - (h->bulk & 7)) != 0)
			return -1;
	}
	queue_deferred(s, d);
	return 0;
}

static void dispatch_notice(struct session *s, const struct header *h, struct deferred *d) {
	s->bulk_left = h->bulk;
	run_handler(s, d);
	if (s->bulk_left != 0 && !session_dead(s))
		(void)stream_bulk(s, h->bulk, NULL, 0);
	s->bulk_left = 0;
}

/* receive_notice returns 0, or -1 when the stream is broken. Small notices that are dispatched at
 * once stay on the stack. */
static int receive_notice(struct session *s, const struct header *h, int dispatch) {
	size_t size = h->size - HEADER;
	_Alignas(struct deferred) unsigned char room[sizeof(struct deferred) + 256];
	int small = dispatch && size <= 256;
	struct deferred *d = small ? (struct deferred *)room : malloc(sizeof *d + size);
	if (!d) {
		session_die(s, DEAD_LOST, "the session was ended: no memory for a notice of %zu bytes", size);
		return -1;
	}
	*d = (struct deferred){.op = h->op, .size = size, .bulk = h->bulk};
	int kept = 0, err = stream_copy(s, d->body, NULL, size);
	if (err == 0 && h->op == s->options.data_op) {
		int handled = receive_data(s, h, d, dispatch);
		kept = handled == 0;
		err = handled < 0 ? -1 : 0;
	} else if (err == 0 && dispatch) {
		dispatch_notice(s, h, d);
	} else if (err == 0) {
		err = defer(s, h, d);
		kept = err == 0;
		if (!kept)
			free(d->bulk_data);
	}
	if (!kept && !small)
		free(d);
	if (dispatch)
		waiters_recheck(s);
	return err;
}

static const char *header_error(struct session *s, const struct header *h) {
	if (h->size < HEADER || h->size % 8 != 0 || h->size > MAX_MESSAGE)
		return "a message of an impossible size";
	if (h->serial != s->received + 1)
		return "messages out of order";
	if (h->bulk > MAX_BULK)
		return "a message with impossible bulk";
	if (h->flags & ~(FLAG_REPLY | FLAG_ALONE | FLAG_MORE))
		return "a message with unknown flags";
	return NULL;
}

int receive_one(struct session *s, int ms, int dispatch) {
	size_t got;
	if (s->corrupt)
		return 0;
	const unsigned char *p = ring_next(s->ring, HEADER, &got, ms);
	if (!p)
		return 0;
	struct header h;
	memcpy(&h, p, sizeof h);
	const char *violation = header_error(s, &h);
	if (violation) {
		stream_corrupt(s, violation);
		return 0;
	}
	s->received++;
	ring_release(s->ring, HEADER);
	int err = h.flags & FLAG_REPLY ? receive_reply(s, &h) : receive_notice(s, &h, dispatch);
	return err == 0;
}
