/* session.h: a session with a worker, seen from the client's process.
 *
 * Generic: it moves messages and knows nothing of any accelerator API. The wire is docs/design/0001.
 *
 * Threads: every function may be called from any thread. A request is built and sent under the session's send lock,
 * which request_begin takes and request_send or request_call gives back. Replies and notices are read by whichever
 * thread waits (leader and followers); session_listen starts one thread, with all signals blocked, that reads while nobody waits.
 * No function changes errno, and all survive EINTR.
 *
 * Handlers (notice, died, a track's done) run on a reading thread that holds no lock of anybody's: request_call,
 * session_wait_until, session_poll, session_open and the listener. So none of these may be called with a lock held that a
 * handler takes; request_send may. A handler must not send and must not wait: session_dispatching tells.
 */
#ifndef OUTBOARD_SESSION_H
#define OUTBOARD_SESSION_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What bulk bytes look like in the program's memory: slices of rows, each a run of bytes. */
struct layout {
	unsigned char *base;
	uint64_t row, rows, row_pitch, slices, slice_pitch; /* bytes, count, bytes, count, bytes */
};

static inline struct layout layout_flat(const void *base, uint64_t size) {
	return (struct layout){(unsigned char *)base, size, 1, size, 1, size};
}
static inline uint64_t layout_size(const struct layout *l) { return l ? l->row * l->rows * l->slices : 0; }

/* Malloc'ed bytes that the receiver frees. */
struct blob {
	unsigned char *data;
	size_t size;
};

/* An early call whose data is of interest: it arrives into `into` with the data notice that names the call's serial; done is
 * called once, as a handler, when the data is complete or the session is dead. Owned by the caller until then.
 * request_begin sets serial. When request_begin or request_send fails, done is never called. */
struct track {
	uint64_t serial;
	struct layout into;
	void (*done)(struct track *, int32_t status);
	void *user;
	struct track *next; /* the session's */
	uint64_t have;      /* the session's: of into, when the data comes in several messages */
	int32_t status;     /* the session's */
};

/* A notice as it arrives. What bulk the handler does not take is thrown away. */
struct notice {
	uint16_t op;
	const unsigned char *body;
	size_t size;
	uint64_t bulk;
};

struct session;

struct session_options {
	const char *socket;     /* path of outboard run's socket */
	uint32_t lease;         /* which of the program's leases */
	int32_t dead_status;    /* what calls return once the session is dead */
	int32_t memory_status;  /* what calls return when a message can't be built: memory is out, or it would be too large */
	uint16_t data_op;       /* notices with this op {u64 serial, i32 status} are data of a track, and no handler sees them */
	void (*notice)(void *user, const struct notice *); /* a handler */
	void (*died)(void *user);                          /* a handler; once */
	void (*listener)(void *user);                      /* runs on the listener thread after session_nudge; may do anything */
	void *user;
};

/* Connects. On failure returns NULL and a text that says what to do. leases and memory_limit are outputs. */
struct session *session_open(const struct session_options *, uint32_t *leases, uint64_t *memory_limit, char *why, size_t why_size);
/* Ends the session and wakes everybody; calls then return the dead status. The listener has ended when this returns, unless it
 * is inside the program's code. The ring is unmapped unless a thread does not let go of it in time. The struct stays. */
void session_close(struct session *);
/* In a forked child: gives up the child's copy of the socket and marks the session dead. Nothing else is touched. */
void session_forked(struct session *);
int session_dead(const struct session *);
int32_t session_dead_status(const struct session *);
/* More than one thread calls from now on: messages no longer say "alone". */
void session_shared(struct session *);
/* Someone must read even when nobody waits: callbacks, polled events. 0, or an errno. */
int session_listen(struct session *);
/* Makes the listener thread call options.listener soon. Never waits. Needs session_listen first. */
void session_nudge(struct session *);
void session_poll(struct session *);          /* reads what is there without waiting */
uint64_t session_serial(const struct session *); /* serial of the last message that this thread sent on any session */
/* Waits until ready(arg) is true, reading meanwhile; 0, or the dead status. ready is called under no lock. */
int32_t session_wait_until(struct session *, int (*ready)(void *), void *arg);
/* Wakes those who wait in session_wait_until, to look again. */
void session_wake(struct session *);
/* True inside a handler, on this thread. */
int session_dispatching(void);

struct request {
	struct session *s;
	struct track *track;
	uint64_t serial, bulk;
	size_t size;          /* of the body */
	unsigned char *start; /* header */
	unsigned char *at;
	unsigned char *heap;  /* when too large for the ring in one piece */
	size_t room;          /* bytes of the ring that start has, 0 on the heap */
	uint16_t op;
};

struct reply {
	int32_t status;
	struct blob body; /* points into room when it fits there */
	const unsigned char *at;
	size_t left;
	int bad; /* the body ended before its fields did */
	unsigned char room[64];
};

/* Takes the send lock and makes room for a body of exactly `body` bytes (a multiple of 8). 0, or a status (lock not held). */
int32_t request_begin(struct request *, struct session *, uint16_t op, size_t body, uint64_t bulk, struct track *);
/* Sends without waiting for an answer. */
int32_t request_send(struct request *, const struct layout *bulk);
/* Sends, waits for the reply, receives its bulk into `into`; the reply's body is freed by reply_free. Returns the reply's status. */
int32_t request_call(struct request *, const struct layout *bulk, struct reply *, const struct layout *into);

static inline size_t wire_padded(size_t n) { return (n + 7) & ~(size_t)7; }
static inline size_t wire_array(const void *p, uint64_t count, size_t element) { return 8 + (p ? wire_padded(count * element) : 0); }

static inline void put_word(struct request *r, uint64_t v) {
	memcpy(r->at, &v, 8);
	r->at += 8;
}
static inline void put_array(struct request *r, const void *p, uint64_t count, size_t element) {
	put_word(r, p ? count : UINT64_MAX);
	if (!p)
		return;
	size_t n = count * element, padded = wire_padded(n);
	if (padded > n)
		memset(r->at + padded - 8, 0, 8);
	memcpy(r->at, p, n);
	r->at += padded;
}

/* Fields of a body, for replies and notices. */
uint64_t get_word(struct reply *);
/* Points into the body; *count is 0 and the result NULL for an absent array. */
const void *get_array(struct reply *, uint64_t *count, size_t element);
struct blob get_blob(struct reply *); /* a copy */
void reply_free(struct reply *);

/* Takes a notice's bulk into memory, whose size must be the notice's; once. Only inside the notice handler. */
void notice_bulk(struct session *, const struct notice *, const struct layout *into);

#endif
