/* receive.c: messages on their way in. One thread, the leader, reads for all: it completes the calls of the others, and hands
 * the lead on when its own is done. The worker is not trusted: what is checked is copied first, and what makes no sense ends the session. */
#include "state.h"

#include <errno.h>
#include <stdlib.h>

enum { FOLLOW_MS = 1000, ASIDE = 64, PIECE = 256 << 10 };

static size_t least(uint64_t a, size_t b) { return a < b ? (size_t)a : b; }

/* ---- the incoming stream */

static void *corrupt(struct session *s, const char *what) {
	session_die(s, DEAD_LOST, "the session was ended: the worker sent %s", what);
	return NULL;
}

static const char *reason(uint32_t closed) {
	switch (closed) {
	case 1 + RING_DONE:
		return "the worker ended it";
	case 1 + RING_LEASE_LOST:
		return "its lease expired or was taken back";
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

/* abandoned looks at the socket, which costs system calls, now and then. */
static int abandoned(struct session *s) {
	int64_t now = now_ms();
	if (now - atomic_load(&s->looked) < TICK_MS)
		return 0;
	atomic_store(&s->looked, now);
	return !socket_alive(s);
}

/* ended looks why nothing came: 1 when nothing will any more. */
static int ended(struct session *s) {
	if (session_dead(s))
		return 1;
	uint32_t closed = ring_closed(s->ring);
	if (closed)
		session_die(s, DEAD_LOST, "the session was lost: %s", reason(closed));
	else if (abandoned(s))
		session_die(s, DEAD_LOST, "the session was lost: outboard run is gone");
	else
		return 0;
	return 1;
}

int receive_ended(struct session *s) { return ended(s); }

/* want waits for the rest of a message that has begun; that may take as long as the session lives. */
static const unsigned char *want(struct session *s, size_t min, size_t *got) {
	for (;;) {
		const unsigned char *p = ring_next(s->ring, min, got, TICK_MS);
		if (p)
			return p;
		if (ended(s))
			return NULL;
	}
}

/* copy_in takes n bytes of the stream: into memory, through a cursor, or (both NULL) nowhere. */
static int copy_in(struct session *s, unsigned char *to, struct cursor *c, uint64_t n) {
	while (n > 0) {
		size_t got;
		const unsigned char *p = want(s, least(n, s->area / 8), &got);
		if (!p)
			return -1;
		got = least(n, least(got, PIECE));
		if (to) {
			memcpy(to, p, got);
			to += got;
		} else if (c) {
			scatter(c, p, got);
		}
		ring_release(s->ring, got);
		n -= got;
	}
	return 0;
}

static int skip_padding(struct session *s, uint64_t bulk) { return copy_in(s, NULL, NULL, wire_padded(bulk & 7) - (bulk & 7)); }

/* take_bulk receives a message's bulk, with its padding, into a layout that has room for it from the given byte on. */
static int take_bulk(struct session *s, uint64_t bulk, const struct layout *into, uint64_t have) {
	struct cursor c = cursor_at(into, have);
	return copy_in(s, NULL, into ? &c : NULL, bulk) != 0 ? -1 : skip_padding(s, bulk);
}

/* ---- waiting */

static int finished(struct waiter *w) { return (atomic_load(&w->bell) & DONE) != 0; }

void waiter_ring(struct waiter *w) {
	atomic_fetch_add(&w->bell, 1);
	futex_wake(&w->bell);
}

void waiter_add(struct session *s, struct waiter *w) {
	pthread_mutex_lock(&s->lock);
	w->next = s->waiters;
	w->at = &s->waiters;
	if (w->next)
		w->next->at = &w->next;
	s->waiters = w;
	pthread_mutex_unlock(&s->lock);
}

/* unlink_waiter is called under lock; twice does no harm. */
static void unlink_waiter(struct waiter *w) {
	if (!w->at)
		return;
	*w->at = w->next;
	if (w->next)
		w->next->at = w->at;
	w->at = NULL;
}

int lead_try(struct session *s) {
	pthread_mutex_lock(&s->lock);
	int free = !s->leading;
	s->leading = 1;
	pthread_mutex_unlock(&s->lock);
	return free;
}

/* lead_leave gives the lead up: to one who waits, or else to the listener. */
void lead_leave(struct session *s) {
	pthread_mutex_lock(&s->lock);
	s->leading = 0;
	struct waiter *heir = s->waiters;
	while (heir && finished(heir))
		heir = heir->next;
	if (heir)
		waiter_ring(heir);
	int owed = !heir && listener_owed(s);
	pthread_mutex_unlock(&s->lock);
	if (owed)
		listener_wake(s);
}

static int satisfied(struct waiter *w) { return finished(w) || (w->ready && w->ready(w->arg)); }

/* lead reads until w has what it waits for, or the session is dead. */
static void lead(struct session *s, struct waiter *w) {
	s->leader = w;
	receive_deferred(s);
	while (!satisfied(w))
		if (!receive_one(s, TICK_MS, 1) && ended(s))
			break;
	s->leader = NULL;
}

/* follow sleeps until the leader rings. bell was read before w was found wanting. */
static void follow(struct session *s, struct waiter *w, uint32_t bell) {
	pthread_mutex_lock(&s->lock);
	int busy = s->leading;
	if (busy && s->listener_leads && s->ring)
		ring_kick(s->ring); /* it gives up the lead, and this thread reads its reply itself */
	pthread_mutex_unlock(&s->lock);
	if (busy)
		futex_sleep(&w->bell, bell, FOLLOW_MS);
}

/* A call whose reply the leader is just copying in is not in the list, and is waited for whatever happens. */
static int hopeless(struct session *s, struct waiter *w) {
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
		if (satisfied(w) || hopeless(s, w))
			break;
		if (!session_dead(s) && lead_try(s)) {
			if (!session_dead(s))
				lead(s, w);
			lead_leave(s);
			continue;
		}
		follow(s, w, bell);
	}
	if (!finished(w)) { /* else the leader has unlinked it */
		pthread_mutex_lock(&s->lock);
		unlink_waiter(w);
		pthread_mutex_unlock(&s->lock);
	}
	if (session_dead(s) && atomic_load(&s->death) != DEAD_FORKED)
		session_bury(s);
}

int32_t session_wait_until(struct session *s, int (*ready)(void *), void *arg) {
	if (ready(arg))
		return 0;
	int saved = errno;
	struct waiter w = {.ready = ready, .arg = arg};
	if (!session_dead(s)) {
		waiter_add(s, &w);
		waiter_wait(s, &w);
	} else if (atomic_load(&s->death) != DEAD_FORKED) {
		session_bury(s);
	}
	errno = saved;
	return ready(arg) ? 0 : s->options.dead_status;
}

/* wake_watchers makes those look again whose condition only they know. */
static void wake_watchers(struct session *s) {
	pthread_mutex_lock(&s->lock);
	for (struct waiter *w = s->waiters; w; w = w->next)
		if (w->ready)
			waiter_ring(w);
	pthread_mutex_unlock(&s->lock);
}

void session_wake(struct session *s) {
	wake_watchers(s);
	pthread_mutex_lock(&s->lock);
	if (s->leading && s->ring)
		ring_kick(s->ring); /* the leader may be one of them */
	pthread_mutex_unlock(&s->lock);
}

void session_poll(struct session *s) {
	int saved = errno;
	if (session_dead(s)) {
		if (!atomic_load(&s->buried) && atomic_load(&s->death) != DEAD_FORKED)
			session_bury(s);
	} else if (lead_try(s)) {
		if (!session_dead(s)) {
			receive_deferred(s);
			for (int n = 0; n < ASIDE && receive_one(s, 0, 1); n++)
				;
			(void)ended(s);
		}
		lead_leave(s);
	}
	errno = saved;
}

void receive_aside(struct session *s) {
	if (!lead_try(s))
		return;
	for (int n = 0; n < ASIDE && receive_one(s, 0, 0); n++)
		;
	lead_leave(s);
}

/* ---- replies */

/* detach finds the waiter of a call and takes it off the list: its thread now waits for the leader whatever happens. */
static struct waiter *detach(struct session *s, uint32_t call) {
	pthread_mutex_lock(&s->lock);
	struct waiter *w = s->waiters;
	while (w && (w->call != call || w->ready))
		w = w->next;
	if (w)
		unlink_waiter(w);
	pthread_mutex_unlock(&s->lock);
	return w;
}

static int take_body(struct session *s, struct reply *r, size_t size) {
	if (size == 0)
		return 0;
	r->body.size = size;
	r->body.data = size <= sizeof r->room ? r->room : malloc(size);
	if (!r->body.data) {
		session_die(s, DEAD_LOST, "the session was ended: no memory for an answer of %zu bytes", size);
		return -1;
	}
	return copy_in(s, r->body.data, NULL, size);
}

/* fits: the data of a success is what was asked for, in one message or with others before it; a failure has none. */
static int fits(const struct header *h, const struct layout *into, uint64_t have, int32_t status) {
	uint64_t left = layout_size(into) - have;
	if (h->flags & FLAG_MORE)
		return status == 0 && h->bulk > 0 && h->bulk < left;
	return h->bulk == (status == 0 ? left : 0);
}

static int fill_reply(struct session *s, struct waiter *w, const struct header *h) {
	if (take_body(s, w->reply, h->size - HEADER) != 0)
		return -1;
	if (!fits(h, w->into, w->have, h->status)) {
		corrupt(s, "an answer of the wrong size");
		return -1;
	}
	uint64_t have = w->have;
	w->have += h->bulk;
	return take_bulk(s, h->bulk, w->into, have);
}

static int receive_reply(struct session *s, const struct header *h) {
	struct waiter *w = detach(s, h->call);
	if (!w) {
		corrupt(s, "an answer to a question that nobody asked");
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
	/* From here on the waiter's memory may be gone. The wake needs no more than the address. */
	int own = w == s->leader;
	_Atomic uint32_t *bell = &w->bell;
	atomic_fetch_or(bell, DONE);
	if (!own)
		futex_wake(bell);
	return err;
}

/* ---- notices */

static void queue_deferred(struct session *s, struct deferred *d) {
	d->next = NULL;
	*s->deferred_end = d;
	s->deferred_end = &d->next;
	atomic_store(&s->has_deferred, 1);
	listener_wake(s);
}

static void notify(struct session *s, struct deferred *d) {
	struct notice n = {d->op, d->body, d->size, d->bulk};
	session_thread.dispatching++;
	if (d->track)
		d->track->done(d->track, d->track->status);
	else
		s->options.notice(s->options.user, &n);
	session_thread.dispatching--;
}

/* receive_deferred tells what could not be told when it came. The leader calls it before anything new. */
void receive_deferred(struct session *s) {
	if (!atomic_load_explicit(&s->has_deferred, memory_order_relaxed))
		return;
	while (s->deferred) {
		struct deferred *d = s->deferred;
		if (!(s->deferred = d->next))
			s->deferred_end = &s->deferred;
		s->bulk_data = d->bulk_data;
		notify(s, d);
		s->bulk_data = NULL;
		free(d->bulk_data);
		free(d);
	}
	atomic_store(&s->has_deferred, 0);
	wake_watchers(s);
}

void notice_bulk(struct session *s, const struct notice *n, const struct layout *into) {
	if (s->bulk_data) {
		struct cursor c = {.layout = into};
		if (into && layout_size(into) == n->bulk)
			scatter(&c, s->bulk_data, n->bulk);
		return;
	}
	if (s->bulk_left == 0)
		return;
	s->bulk_left = 0;
	if (into && layout_size(into) != n->bulk)
		corrupt(s, "a notice of the wrong size");
	else
		(void)take_bulk(s, n->bulk, into, 0);
}

static struct track *take_track(struct session *s, uint64_t serial) {
	pthread_mutex_lock(&s->lock);
	struct track **at = &s->tracks, *t;
	while ((t = *at) && t->serial != serial)
		at = &t->next;
	if (t && !(*at = t->next))
		s->tracks_end = at;
	pthread_mutex_unlock(&s->lock);
	return t;
}

/* put_track is for one whose data is not all there. 0: the session died meanwhile, and nobody may look for it again. */
static int put_track(struct session *s, struct track *t) {
	pthread_mutex_lock(&s->lock);
	int dead = session_dead(s);
	if (!dead) {
		if (!(t->next = s->tracks))
			s->tracks_end = &t->next;
		s->tracks = t;
	}
	pthread_mutex_unlock(&s->lock);
	return !dead;
}

/* receive_data takes a track's data straight to where it belongs. */
static int receive_data(struct session *s, const struct header *h, struct deferred *d, int dispatch) {
	struct reply fields = {.at = d->body, .left = d->size};
	uint64_t serial = get_word(&fields);
	int32_t status = (int32_t)get_word(&fields);
	struct track *t = fields.bad ? NULL : take_track(s, serial);
	if (!t) {
		corrupt(s, "data that nobody asked for");
		return -1;
	}
	int err = 0;
	if (!fits(h, &t->into, t->have, status)) {
		corrupt(s, "data of the wrong size");
		err = -1;
	} else {
		err = take_bulk(s, h->bulk, h->bulk ? &t->into : NULL, t->have);
		t->have += h->bulk;
	}
	if (err == 0 && h->flags & FLAG_MORE) {
		if (put_track(s, t))
			return 1;
		err = -1;
	}
	t->status = err == 0 ? status : s->options.dead_status;
	d->track = t;
	if (dispatch)
		notify(s, d);
	else
		queue_deferred(s, d);
	return dispatch ? 1 : 0;
}

static int defer(struct session *s, const struct header *h, struct deferred *d) {
	if (h->bulk != 0) {
		d->bulk_data = malloc(h->bulk);
		if (!d->bulk_data) {
			session_die(s, DEAD_LOST, "the session was ended: no memory for a notice of %llu bytes", (unsigned long long)h->bulk);
			return -1;
		}
		if (copy_in(s, d->bulk_data, NULL, h->bulk) != 0 || skip_padding(s, h->bulk) != 0)
			return -1;
	}
	queue_deferred(s, d);
	return 0;
}

static void tell(struct session *s, const struct header *h, struct deferred *d) {
	s->bulk_left = h->bulk;
	notify(s, d);
	if (s->bulk_left != 0 && !session_dead(s))
		(void)take_bulk(s, h->bulk, NULL, 0);
	s->bulk_left = 0;
}

/* receive_notice returns 0, or -1 when the stream is broken. Small notices live on the stack. */
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
	int kept = 0, err = copy_in(s, d->body, NULL, size);
	if (err == 0 && h->op == s->options.data_op) {
		int told = receive_data(s, h, d, dispatch);
		kept = told == 0;
		err = told < 0 ? -1 : 0;
	} else if (err == 0 && dispatch) {
		tell(s, h, d);
	} else if (err == 0) {
		err = defer(s, h, d);
		kept = err == 0;
		if (!kept)
			free(d->bulk_data);
	}
	if (!kept && !small)
		free(d);
	if (dispatch)
		wake_watchers(s);
	return err;
}

/* ---- messages */

static const char *fault(struct session *s, const struct header *h) {
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
	const unsigned char *p = ring_next(s->ring, HEADER, &got, ms);
	if (!p)
		return 0;
	struct header h;
	memcpy(&h, p, sizeof h);
	const char *what = fault(s, &h);
	if (what) {
		corrupt(s, what);
		return 0;
	}
	s->received++;
	ring_release(s->ring, HEADER);
	int err = h.flags & FLAG_REPLY ? receive_reply(s, &h) : receive_notice(s, &h, dispatch);
	return err == 0;
}

/* ---- fields */

uint64_t get_word(struct reply *r) {
	uint64_t v;
	if (r->bad || r->left < 8) {
		r->bad = 1;
		return 0;
	}
	memcpy(&v, r->at, 8);
	r->at += 8;
	r->left -= 8;
	return v;
}

const void *get_array(struct reply *r, uint64_t *count, size_t element) {
	uint64_t n = get_word(r);
	*count = 0;
	if (r->bad || n == UINT64_MAX)
		return NULL;
	if (n > r->left / element || wire_padded((size_t)n * element) > r->left) {
		r->bad = 1;
		return NULL;
	}
	const void *p = r->at;
	size_t size = wire_padded((size_t)n * element);
	r->at += size;
	r->left -= size;
	*count = n;
	return p;
}

struct blob get_blob(struct reply *r) {
	uint64_t n;
	const void *p = get_array(r, &n, 1);
	if (!p)
		return (struct blob){NULL, 0};
	struct blob b = {malloc((size_t)n + 1), (size_t)n};
	if (!b.data)
		return (struct blob){NULL, 0};
	memcpy(b.data, p, (size_t)n);
	b.data[n] = 0; /* texts end for those who forget to look at the size */
	return b;
}

void reply_free(struct reply *r) {
	if (r->body.data != r->room)
		free(r->body.data);
	r->body = (struct blob){NULL, 0};
	r->at = NULL;
	r->left = 0;
}
