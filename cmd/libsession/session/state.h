/* state.h: the internal state of a session, shared by the files of this folder. Layer: session.
 *
 * Two roles, each held by one thread at a time:
 *   sender  holds s->send; only the sender touches the ring's outgoing side and the serial.
 *   leader  has set s->leading; only the leader touches the ring's incoming side and the deferred
 *           notices.
 * s->lock guards the rest and is held for a few instructions. Order: send, then lock. A sender never
 * waits for leadership.
 */
#ifndef OUTBOARD_STATE_H
#define OUTBOARD_STATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "futex.h"
#include "record.h"
#include "ring.h"
#include "session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { HEADER = 32, MAX_MESSAGE = 64 << 20, TICK_MS = 100 };
#define MAX_BULK (UINT64_C(1) << 42)
enum { MAX_DEFERRED = 64 << 20 }; /* bytes of deferred notices */

enum { FLAG_WANT_REPLY = 1, FLAG_REPLY = 2, FLAG_ALONE = 4, FLAG_MORE = 8 };

/* Causes of a death: the peer or the connection, session_close, a fork. */
enum death { ALIVE, DEAD_LOST, DEAD_CLOSED, DEAD_FORKED };

struct header {
	uint32_t size;
	uint16_t op, flags;
	uint32_t call;
	int32_t status;
	uint64_t bulk, serial;
};
_Static_assert(sizeof(struct header) == HEADER, "the header's layout is the wire's");

/* A thread that waits for the reply to the call with that number, or (call 0) until ready returns
 * true. It lies on the thread's stack. */
struct waiter {
	struct waiter *next, **at;
	uint32_t call;
	struct reply *reply;
	const struct layout *into;
	uint64_t have; /* bytes of into that have arrived, when the reply comes in several messages */
	uint64_t serial;      /* of the call */
	track_match *implies; /* the data that a reply of success implies; NULL: none */
	const void *implies_arg;
	int (*ready)(void *);
	void *arg;
	_Atomic uint32_t bell; /* futex word: changed to make the thread check again; DONE: the reply is complete */
};
#define DONE UINT32_C(0x80000000)

/* A notice, or a completed track, whose handler has yet to run. */
struct deferred {
	struct deferred *next;
	struct track *track;
	uint16_t op;
	size_t size;
	uint64_t bulk;
	unsigned char *bulk_data;
	unsigned char body[];
};

enum listener_state { LISTENER_NONE, LISTENER_RUNS, LISTENER_STOPPING, LISTENER_ENDED };

struct session {
	struct session_options options;
	ring *ring;
	size_t area;
	_Atomic uint32_t death;
	_Atomic uint32_t death_reported;   /* the handlers of the death have run */
	_Atomic uint32_t shared;   /* several threads, or a listener, use the session */
	_Atomic int64_t socket_checked_ms; /* when socket_closed last polled the socket */

	/* The socket. Its end of file means the end of outboard run. */
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
	struct track *tracks, **tracks_end; /* by ascending serial */

	/* Used by the leader only. */
	struct waiter *leader;     /* NULL when the leader itself waits for no reply or condition */
	uint64_t received;         /* serial of the last message */
	int corrupt;               /* the worker has violated the protocol: nothing more is read */
	struct deferred *deferred, **deferred_end;
	size_t deferred_bytes;
	_Atomic uint32_t has_deferred;
	unsigned char *bulk_data;  /* of the notice being dispatched, when it was deferred */
	uint64_t bulk_left;        /* of the notice being dispatched: bytes still in the ring */

	/* Of the listener thread. */
	pthread_t listener;
	int listener_state;        /* under lock: enum listener_state */
	int listener_in_callback;      /* under lock: in options.listener */
	int listener_asleep;         /* under lock: sleeps for longer than a tick */
	_Atomic uint32_t nudged;
	_Atomic uint32_t listener_bell;
};

/* ---- liveness.c */
struct thread {
	uint64_t serial;  /* of the last message that the thread sent */
	uint64_t answered; /* of the last message for whose reply it waited */
	int dispatching;  /* handlers on the thread's stack */
	track_match *implies; /* by the replies to the thread's calls */
	const void *implies_arg;
};
extern _Thread_local struct thread session_thread;
/* Marks the session dead, once, logs the text (unless format is NULL) and wakes all waiters. Runs
 * no handler. */
void session_die(struct session *, enum death cause, const char *format, ...) __attribute__((format(printf, 3, 4)));
void waiter_wake(struct waiter *);
void listener_wake(struct session *);

/* ---- handshake.c */
/* Connects to outboard run. Returns the socket, or -1 and a text in why. *memory is the ring's
 * descriptor. */
int handshake(const char *path, uint32_t lease, int *memory, uint32_t *leases, uint64_t *limit, char *why, size_t why_size);
/* True while the socket is connected, and when its number no longer means this socket. */
int socket_alive(struct session *);
void socket_store(struct session *, int fd);
void socket_close(struct session *);

/* ---- waiter.c */
void waiter_add(struct session *, struct waiter *);
void waiter_unlink(struct waiter *); /* under lock; a second call does nothing */
/* Removes the waiter of a call from the list: its thread now waits until DONE, also when the
 * session dies. NULL: no such call. */
struct waiter *waiter_detach(struct session *, uint32_t call);
int waiter_done(struct waiter *);
/* Wakes the threads that wait for a condition. */
void waiters_recheck(struct session *);
int leader_try(struct session *); /* becomes the leader when there is none; never waits */
void leader_resign(struct session *);

/* ---- stream.c: for the leader, except session_check_end */
/* Called when no message was received or no space was free: 1 when the session is dead, or has been
 * found ended and marked dead. In either role. */
int session_check_end(struct session *);
void stream_corrupt(struct session *, const char *violation);
/* Copies n bytes of the stream: into memory, through a cursor, or (both NULL) nowhere. 0, or -1
 * when the session has died. */
int stream_copy(struct session *, unsigned char *to, struct cursor *, uint64_t n);
/* Receives a message's bulk and its padding into a layout that has space for it from byte `have`
 * on. */
int stream_bulk(struct session *, uint64_t bulk, const struct layout *into, uint64_t have);

/* ---- receive.c: for the leader */
/* Reads one message; 0 when there is none within ms. dispatch: handlers may run now. */
int receive_one(struct session *, int ms, int dispatch);
void receive_deferred(struct session *);

/* ---- wait.c */
void waiter_wait(struct session *, struct waiter *);
/* Reads the received messages, for a sender that waits for space. */
void receive_while_sending(struct session *);
/* Runs the handlers of a death, once. Called where handlers may run. */
void session_report_death(struct session *);

/* ---- listener.c */
/* Ends the listener thread. */
void listener_stop(struct session *);

#endif
