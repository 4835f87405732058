/* session.h: a session with a worker, seen from the client's process.
 *
 * Generic: it moves messages and knows nothing of any accelerator API. The wire is docs/design/0001.
 *
 * Threads: every function may be called from any thread. A request is built and sent under the session's send lock,
 * which request_begin takes and request_send or request_call gives back. Replies and notices are read by whichever
 * thread waits (leader and followers); session_listen starts one thread, with all signals blocked, that reads while nobody waits.
 * No function changes errno, and all survive EINTR.
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

/* An early call whose data or failure is of interest: data arrives into `into`; done is called once, by a reading thread
 * that holds no lock, when the data is complete or the session is dead. Owned by the caller until then. */
struct track {
	uint64_t serial;
	struct layout into;
	void (*done)(struct track *, int32_t status);
	void *user;
	struct track *next;
};

/* A notice as it arrives. bulk must be taken with notice_bulk, once. */
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
	void (*notice)(void *user, const struct notice *); /* called by a reading thread; must not call back into the session's waiting functions */
	void (*died)(void *user);                          /* once, by any thread */
	void *user;
};

/* Connects. On failure returns NULL and a text that says what to do. leases and memory_limit are outputs. */
struct session *session_open(const struct session_options *, uint32_t *leases, uint64_t *memory_limit, char *why, size_t why_size);
void session_close(struct session *);      /* ends the session; wakes everybody */
int session_dead(const struct session *);
int32_t session_dead_status(const struct session *);
int session_listen(struct session *);      /* someone must read even when nobody waits: callbacks, polled events */
void session_poll(struct session *);       /* reads what is there without waiting */
uint64_t session_serial(struct session *); /* serial of the last message sent */
/* Waits until ready(arg) is true, reading meanwhile; 0, or the dead status. ready is called under no lock. */
int32_t session_wait_until(struct session *, int (*ready)(void *), void *arg);
/* Wakes those who wait in session_wait_until. */
void session_wake(struct session *);

struct request {
	struct session *s;
	struct track *track;
	uint64_t serial, bulk;
	size_t size;          /* of the body */
	unsigned char *start; /* header */
	unsigned char *at;
	unsigned char *heap;  /* when too large for the ring in one piece */
	uint16_t op;
};

struct reply {
	int32_t status;
	struct blob body;
	const unsigned char *at;
	size_t left;
	int bad; /* the body ended before its fields did */
};

/* Takes the send lock and makes room for a body of exactly `body` bytes (a multiple of 8). 0, or the dead status (lock not held). */
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

/* Takes a notice's bulk into memory (NULL: throws it away). */
void notice_bulk(struct session *, const struct notice *, const struct layout *into);
/* Finds and removes the track with that serial, receives the notice's bulk into it, and calls done. */
void session_finish_track(struct session *, const struct notice *, uint64_t serial, int32_t status);

#endif
