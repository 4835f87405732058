/* session.h: a client's session with a worker: requests out, replies and notices in.
 * Layer: session.
 *
 * Independent of any accelerator API. The wire is docs/design/0001.
 *
 * Threads: every function may be called from any thread. A request is built and sent under the
 * session's send lock, which request_begin acquires and request_send or request_call releases.
 * Replies and notices are read by one of the waiting threads (leader/followers); session_listen
 * starts a thread, with all signals blocked, that reads while no other thread waits. No function
 * changes errno, and all survive EINTR.
 *
 * Handlers (notice, died, a track's done) run on a reading thread that holds none of the session's
 * locks: in request_call, session_wait_until, session_poll, session_open and the listener.
 * Therefore none of these may be called with a lock held that a handler acquires; request_send may.
 * A handler must not send and must not wait: session_dispatching is true inside one.
 */
#ifndef OUTBOARD_SESSION_H
#define OUTBOARD_SESSION_H

#include "layout.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Malloc'ed bytes, freed by the receiver. */
struct blob {
	unsigned char *data;
	size_t size;
};

/* The destination of an early call's data, which arrives with a data notice that contains the
 * call's serial. done is called once, as a handler, when the data is complete or the session is
 * dead; until then the session uses the track. request_begin sets serial. When request_begin or
 * request_send fails, done is never called. */
struct track {
	uint64_t serial;
	struct layout into;
	void (*done)(struct track *, int32_t status);
	void *user;
	const void *queue, *event; /* of the call; only a track_match reads them */
	void *dependents;          /* of the call; a visit of session_each_track changes it, under the lock */
	struct track *next; /* private to the session, as the fields below */
	uint64_t have;      /* bytes of into that have arrived */
	int32_t status;
};

/* Whether a message implies that the data of a track has arrived: the end of a call, or of calls with
 * serials below `before`. It runs under the session's lock. */
typedef int track_match(const struct track *, uint64_t before, const void *arg);

/* A received notice. Bulk that the handler does not receive is discarded. */
struct notice {
	uint16_t op;
	const unsigned char *body;
	size_t size;
	uint64_t bulk;
};

struct session;

struct session_options {
	const char *socket;     /* path of outboard run's socket */
	uint32_t lease;         /* index of the program's lease */
	int32_t dead_status;    /* the result of calls once the session is dead */
	int32_t memory_status;  /* the result of calls without memory for a message */
	uint16_t data_op;       /* notices with this op {u64 serial, i32 status} carry a track's data and are not passed to the handler */
	void (*notice)(void *user, const struct notice *); /* a handler */
	void (*died)(void *user);                          /* a handler; once */
	void (*listener)(void *user);                      /* runs on the listener thread after session_nudge; may do anything */
	void *user;
};

/* Connects. On failure returns NULL and sets a text for the user. leases and memory_limit are
 * outputs. */
struct session *session_open(const struct session_options *, uint32_t *leases, uint64_t *memory_limit, char *why, size_t why_size);
/* Ends the session and wakes all waiters; calls then return the dead status. The listener has ended
 * when this returns, unless it is running the program's code. The ring is unmapped unless a thread
 * uses it for too long. The struct is not freed. */
void session_close(struct session *);
/* For a forked child: closes the child's copy of the socket and marks the session dead. Changes
 * nothing else. */
void session_forked(struct session *);
int session_dead(const struct session *);
int32_t session_dead_status(const struct session *);
/* Records that more than one thread calls: messages no longer carry the flag "alone". */
void session_shared(struct session *);
/* Starts the listener thread, for callbacks and polled events. 0, or an errno. */
int session_listen(struct session *);
/* Makes the listener thread call options.listener soon. Never waits. Needs session_listen first. */
void session_nudge(struct session *);
void session_poll(struct session *);          /* reads the received messages, without waiting */
uint64_t session_serial(const struct session *); /* serial of the last message that this thread sent on any session */
uint64_t session_answered(void);                 /* serial of the last message for whose reply this thread waited */
/* Waits until ready(arg) is true, reading meanwhile; 0, or the dead status. ready is called under
 * no lock. */
int32_t session_wait_until(struct session *, int (*ready)(void *), void *arg);
/* Makes the threads in session_wait_until check their conditions again. */
void session_wake(struct session *);
/* True inside a handler of the calling thread. */
int session_dispatching(void);
/* Returns 0 when the data of all matching calls with lower serials has arrived. Otherwise ends the
 * session and returns -1: after the message that implied the data, the program may free the
 * memory to which data would still be written. For handlers. */
int session_require_data(struct session *, uint64_t before, track_match *, const void *arg);
/* Calls visit for each track whose data has not arrived, under the session's lock. */
void session_each_track(struct session *, void (*visit)(struct track *, void *arg), void *arg);
/* Requires the same when a reply of success arrives for a call of this thread, for all of its calls
 * until session_expect_data(NULL, NULL). */
void session_expect_data(track_match *, const void *arg);

/* Writes one line to the standard error, prefixed "outboard: ". */
void session_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct request {
	struct session *s;
	struct track *track;
	uint64_t serial, bulk;
	size_t size;          /* of the body */
	unsigned char *start; /* header */
	unsigned char *at;
	unsigned char *heap;  /* for a message that is too large for the ring in one piece */
	size_t room;          /* bytes of the ring at start, 0 on the heap */
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

/* Acquires the send lock and reserves memory for a body of exactly `body` bytes (a multiple of 8).
 * 0, or a status (lock not held). */
int32_t request_begin(struct request *, struct session *, uint16_t op, size_t body, uint64_t bulk, struct track *);
/* Sends without waiting for a reply. */
int32_t request_send(struct request *, const struct layout *bulk);
/* Sends, waits for the reply, receives its bulk into `into`; the reply's body is freed by
 * reply_free. Returns the reply's status. */
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
/* Ends the session after a reply of success whose fields are incomplete. Returns the dead
 * status. */
int32_t reply_malformed(struct session *);
void reply_free(struct reply *);

/* Receives a notice's bulk into a layout of the same size, once, inside the notice handler. */
void notice_bulk(struct session *, const struct notice *, const struct layout *into);

#endif
