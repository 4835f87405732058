/* ring.h: the client end of a ring: two byte streams over shared memory between
 * this process and a worker. Layer: ring. The layout and the rules are those of
 * docs/design/0001; internal/shm is the other end, in Go.
 *
 * One thread at a time may call ring_reserve and ring_commit, one thread at a
 * time ring_next and ring_release; the two groups are independent.
 * ring_close, ring_closed and ring_kick may be called from any thread. No
 * function acquires a lock, allocates after ring_open or changes errno, and a
 * signal handler that interrupts a wait only makes it check again. */
#ifndef OUTBOARD_RING_H
#define OUTBOARD_RING_H

#include <stddef.h>
#include <stdint.h>

typedef struct ring ring;

/* Reasons for closing: 0 is a clean end, others are 1 + an outboard.Kind. */
enum {
	RING_DONE = 0,
	RING_LEASE_LOST = 7,
	RING_UNREACHABLE = 8,
	RING_SESSION_LOST = 9,
	RING_CORRUPT = 10
};

/* Maps the ring in fd and sets *out. Returns 0 or -errno: -EINVAL when fd is no ring or could be
 * resized, -EPROTONOSUPPORT for another layout version. The caller may close the descriptor
 * afterwards. */
int ring_open(int fd, ring **out);

/* Bytes of one direction: the largest min of ring_reserve and ring_next. When one end waits for
 * more bytes than are in the ring and the other for more space than is free, both wait for ever: a
 * message of more than half of this is sent and read in pieces. */
size_t ring_area(const ring *r);

/* Waits until at least min bytes (at least one) are free; returns the address to write to and sets
 * *got to the number of free bytes. NULL after timeout_ms (negative: no limit), when the ring is
 * closed (see ring_closed), or for min above ring_area. */
void *ring_reserve(ring *r, size_t min, size_t *got, int timeout_ms);

/* Publishes the first n bytes that ring_reserve returned. */
void ring_commit(ring *r, size_t n);

/* Waits until at least min bytes (at least one) can be read; returns their address and sets *got to
 * the number of readable bytes. NULL after timeout_ms, after ring_kick, when the ring is closed and
 * fewer are left, or for min above ring_area. The worker may change the bytes at any time: copy
 * before checking. */
const void *ring_next(ring *r, size_t min, size_t *got, int timeout_ms);

/* Releases the first n bytes that ring_next returned. */
void ring_release(ring *r, size_t n);

/* 0 while the ring is open, else 1 + the reason. */
uint32_t ring_closed(const ring *r);

/* Closes both directions and wakes all sleepers of both processes. The first
 * reason wins. */
void ring_close(ring *r, uint32_t reason);

/* Makes the current ring_next, or else the next one that would sleep, return NULL. */
void ring_kick(ring *r);

/* Unmaps. No thread may be inside another function of the ring, or call one later. */
void ring_unmap(ring *r);

#endif
