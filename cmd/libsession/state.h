/* state.h: what the files of the session share.
 *
 * Two roles, each held by one thread at a time:
 *   sender  holds s->send; only it touches the ring's outgoing side and the serial.
 *   leader  has s->leading; only it touches the ring's incoming side and the deferred notices.
 * s->lock guards the rest and is held for a few instructions. Order: send, then lock. The lead is never waited for by a sender.
 */
#ifndef OUTBOARD_STATE_H
#define OUTBOARD_STATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "ring.h"
#include "session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { HEADER = 32, MAX_MESSAGE = 64 << 20, TICK_MS = 100 };
#define MAX_BULK (UINT64_C(1) << 42)

enum { FLAG_WANT_REPLY = 1, FLAG_REPLY = 2, FLAG_ALONE = 4, FLAG_MORE = 8 };

/* Who sent what is said when a session dies. */
enum death { ALIVE, DEAD_LOST, DEAD_CLOSED, DEAD_FORKED };

struct header {
	uint32_t size;
	uint16_t op, flags;
	uint32_t call;
	int32_t status;
	uint64_t bulk, serial;
};
_Static_assert(sizeof(struct header) == HEADER, "the header's layout is the wire's");

/* Someone who waits: for the reply with number call, or (call 0) until ready says so. On the waiting thread's stack. */
struct waiter {
	struct waiter *next, **at;
	uint32_t call;
	struct reply *reply;
	const struct layout *into;
	uint64_t have; /* of into, when the reply comes in several messages */
	int (*ready)(void *);
	void *arg;
	_Atomic uint32_t bell; /* futex: look again; DONE: the reply is complete */
};
#define DONE UINT32_C(0x80000000)

/* A notice, or a track whose data is there, that must wait for a thread that may run handlers. */
struct deferred {
	struct deferred *next;
	struct track *track;
	uint16_t op;
	size_t size;
	uint64_t bulk;
	unsigned char *bulk_data;
	unsigned char body[];
};

struct session {
	struct session_options options;
	ring *ring;
	size_t area;
	_Atomic uint32_t death;
	_Atomic uint32_t buried;   /* the tracks and died have been told */
	_Atomic uint32_t shared;   /* more than one thread, or a listener */
	_Atomic int64_t looked;    /* at the socket, ms */

	/* The socket. Its end of file is the death of outboard run. */
	pthread_mutex_t socket_lock;
	int socket;
	dev_t socket_dev;
	ino_t socket_ino;

	pthread_mutex_t send;
	uint64_t sent;             /* serial of the last message */
	uint32_t calls;            /* number of the last call */

	pthread_mutex_t lock;
	int leading;
	int listener_leads;
	struct waiter *waiters;
	struct track *tracks, **tracks_end;

	/* The leader's. */
	struct waiter *leader;     /* NULL when it does not wait itself */
	uint64_t received;         /* serial of the last message */
	struct deferred *deferred, **deferred_end;
	_Atomic uint32_t has_deferred;
	unsigned char *bulk_data;  /* of the notice at hand, when it was deferred */
	uint64_t bulk_left;        /* of the notice at hand */

	/* The listener's. */
	pthread_t listener;
	int listener_state;        /* under lock: 0 none, 1 runs, 2 must stop, 3 ended */
	int listener_outside;      /* under lock: inside options.listener */
	int listener_deep;         /* under lock: sleeps until it is woken */
	_Atomic uint32_t nudged;
	_Atomic uint32_t listener_bell;
};

/* futex.c */
void futex_sleep(_Atomic uint32_t *word, uint32_t old, int ms);
void futex_wake(_Atomic uint32_t *word);
int64_t now_ms(void);

/* session.c */
void session_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Marks the session dead (format NULL: silently) and wakes everybody. Runs no handler. */
void session_die(struct session *, enum death, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Runs the handlers of a death, once. Called where handlers may run. */
void session_bury(struct session *);

/* handshake.c */
int handshake(const char *path, uint32_t lease, int *memory, uint32_t *leases, uint64_t *limit, char *why, size_t why_size);
/* True when the socket still stands, or is not ours any more. */
int socket_alive(struct session *);
void socket_remember(struct session *, int fd);
void socket_drop(struct session *);

/* receive.c */
/* Tries to take the lead without waiting. */
int lead_try(struct session *);
void lead_leave(struct session *);
/* Reads one message; 0 when there is none within ms. dispatch: handlers may run now. */
int receive_one(struct session *, int ms, int dispatch);
void receive_deferred(struct session *);
/* Called when nothing came, or went: 1 when nothing will any more, and the session is then dead. In either role. */
int receive_ended(struct session *);
/* Reads all that is there, for a sender that waits for space. */
void receive_aside(struct session *);
void waiter_add(struct session *, struct waiter *);
void waiter_wait(struct session *, struct waiter *);
void waiter_ring(struct waiter *);

/* listener.c */
void listener_wake(struct session *);
/* Under lock, by a leader that leaves: somebody must read again. */
int listener_owed(struct session *);
void listener_stop(struct session *);

/* bulk.c */
struct cursor {
	const struct layout *layout;
	uint64_t slice, row, column;
};
struct cursor cursor_at(const struct layout *, uint64_t offset);
void gather(struct cursor *, unsigned char *to, size_t n);
void scatter(struct cursor *, const unsigned char *from, size_t n);

/* The thread's own. */
struct thread {
	uint64_t serial;
	int dispatching;
};
extern _Thread_local struct thread session_thread;

#endif
