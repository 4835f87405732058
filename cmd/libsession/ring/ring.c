/* ring.c: the client end of a ring: two byte streams over shared memory. Layer: ring. */
#define _GNU_SOURCE
#include "ring.h"
#include "spin.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The layout of the control page; internal/shm/memory_linux.go has the same. */
enum {
	MAGIC = 0x4f425247,
	VERSION = 1,
	PAGE = 4096,
	MIN_AREA = PAGE,
	MAX_AREA = 1 << 30,

	OFF_AREA = 8,
	OFF_CLOSED = 64,
	OFF_DIR = 128,
	SIZE_DIR = 512,

	OFF_HEAD = 0,
	OFF_DATA_BELL = 64,
	OFF_DATA_SLEEPER = 128,
	OFF_TAIL = 192,
	OFF_SPACE_BELL = 256,
	OFF_SPACE_SLEEPER = 320
};

enum { DATA_LIMIT_MS = 1000, SPACE_LIMIT_MS = 10 };

/* Futex operations without the private flag, which would not match across processes. */
enum { OP_WAIT = 0, OP_WAKE = 1 };

typedef _Atomic uint32_t word;
typedef _Atomic uint64_t position;

_Static_assert(sizeof(word) == 4 && sizeof(position) == 8, "atomics must be plain words");

struct direction {
	position *head, *tail;
	word *data, *space;
	word *data_sleeper, *space_sleeper;
	unsigned char *buf;
};

struct ring {
	void *control;
	uint64_t area;
	word *shared_closed; /* the worker can overwrite it */
	word closed;         /* the accepted value: once set it stays */
	word kicked;
	struct direction out, in;
	/* This end's own positions, and the greatest accepted positions of the peer. The peer only
	 * reads the words in shared memory that this end writes. */
	uint64_t out_head, out_tail;
	uint64_t in_tail, in_head;
	uint64_t unsignalled; /* bytes released since the space bell was last changed */
	struct spin spin;
};

/* futex_wait sleeps while *bell is old, at most limit_ms milliseconds. */
static void futex_wait(word *bell, uint32_t old, int limit_ms)
{
	struct timespec ts = { limit_ms / 1000, (limit_ms % 1000) * 1000000L };
	int saved = errno;
	syscall(SYS_futex, bell, OP_WAIT, old, &ts, NULL, 0);
	errno = saved;
}

static void futex_wake_all(word *bell)
{
	int saved = errno;
	syscall(SYS_futex, bell, OP_WAKE, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

/* signal_sleeper announces a change to the other end; it makes a system call only if that end
 * sleeps. */
static void signal_sleeper(word *bell, word *sleeper)
{
	atomic_fetch_add(bell, 1);
	if (atomic_load(sleeper) != 0 && atomic_exchange(sleeper, 0) != 0)
		futex_wake_all(bell);
}

static void wake_always(word *bell, word *sleeper)
{
	atomic_fetch_add(bell, 1);
	atomic_store(sleeper, 0);
	futex_wake_all(bell);
}

static int64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t now_ms(void)
{
	return now_ns() / 1000000;
}

/* next_wait returns the time to sleep now: up to limit, within the deadline; 0 when the deadline
 * has passed. */
static int next_wait(int timeout_ms, int64_t deadline, int limit)
{
	if (timeout_ms < 0)
		return limit;
	int64_t left = deadline - now_ms();
	return left <= 0 ? 0 : left < limit ? (int)left : limit;
}

static struct direction direction_at(unsigned char *control, int d, unsigned char *buf)
{
	unsigned char *base = control + OFF_DIR + d * SIZE_DIR;
	return (struct direction){
		.head = (position *)(base + OFF_HEAD),
		.tail = (position *)(base + OFF_TAIL),
		.data = (word *)(base + OFF_DATA_BELL),
		.space = (word *)(base + OFF_SPACE_BELL),
		.data_sleeper = (word *)(base + OFF_DATA_SLEEPER),
		.space_sleeper = (word *)(base + OFF_SPACE_SLEEPER),
		.buf = buf,
	};
}

/* validate checks that fd is a ring whose size cannot change. */
static int validate(int fd, uint64_t *area)
{
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
		return -EINVAL;
	struct stat st;
	if (fstat(fd, &st) != 0)
		return -errno;
	struct {
		uint32_t magic, version;
		uint64_t area;
	} header;
	ssize_t n;
	while ((n = pread(fd, &header, sizeof header, 0)) < 0 && errno == EINTR)
		;
	if (n != (ssize_t)sizeof header || header.magic != MAGIC)
		return -EINVAL;
	if (header.version != VERSION)
		return -EPROTONOSUPPORT;
	if (header.area < MIN_AREA || header.area > MAX_AREA || (header.area & (header.area - 1)) != 0)
		return -EINVAL;
	if (st.st_size != (off_t)(PAGE + 2 * header.area) || sysconf(_SC_PAGESIZE) != PAGE)
		return -EINVAL;
	*area = header.area;
	return 0;
}

/* map_twice maps the area at offset twice, back to back, so that any range of its bytes is
 * contiguous. */
static unsigned char *map_twice(int fd, off_t offset, size_t area)
{
	unsigned char *base = mmap(NULL, 2 * area, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return NULL;
	for (int half = 0; half < 2; half++) {
		void *at = base + half * area;
		if (mmap(at, area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) == MAP_FAILED) {
			int saved = errno;
			munmap(base, 2 * area);
			errno = saved;
			return NULL;
		}
	}
	return base;
}

static int map_ring(int fd, ring *r)
{
	unsigned char *areas[2] = { NULL, NULL };
	unsigned char *control = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (control == MAP_FAILED)
		return -errno;
	for (int d = 0; d < 2; d++) {
		areas[d] = map_twice(fd, (off_t)(PAGE + d * r->area), r->area);
		if (areas[d] == NULL) {
			int err = -errno;
			if (d == 1)
				munmap(areas[0], 2 * r->area);
			munmap(control, PAGE);
			return err;
		}
	}
	r->control = control;
	r->shared_closed = (word *)(control + OFF_CLOSED);
	r->out = direction_at(control, 0, areas[0]);
	r->in = direction_at(control, 1, areas[1]);
	return 0;
}

static int open_ring(int fd, ring **out)
{
	uint64_t area = 0;
	int err = validate(fd, &area);
	if (err != 0)
		return err;
	ring *r = calloc(1, sizeof *r);
	if (r == NULL)
		return -ENOMEM;
	r->area = area;
	err = map_ring(fd, r);
	if (err != 0) {
		free(r);
		return err;
	}
	r->out_head = atomic_load(r->out.head);
	r->out_tail = atomic_load(r->out.tail);
	r->in_tail = r->in_head = atomic_load(r->in.tail);
	*out = r;
	return 0;
}

int ring_open(int fd, ring **out)
{
	int saved = errno;
	int err = open_ring(fd, out);
	errno = saved;
	return err;
}

size_t ring_area(const ring *r)
{
	return (size_t)r->area;
}

/* latch stores a close reason in this process's own memory; the first one wins. */
static uint32_t latch(ring *r, uint32_t value)
{
	uint32_t none = 0;
	atomic_compare_exchange_strong(&r->closed, &none, value);
	return atomic_load(&r->closed);
}

uint32_t ring_closed(const ring *r)
{
	uint32_t own = atomic_load(&r->closed);
	if (own != 0)
		return own;
	uint32_t theirs = atomic_load(r->shared_closed);
	return theirs == 0 ? 0 : latch((ring *)r, theirs);
}

void ring_close(ring *r, uint32_t reason)
{
	uint32_t none = 0;
	atomic_compare_exchange_strong(r->shared_closed, &none, 1 + reason);
	uint32_t theirs = atomic_load(r->shared_closed);
	latch(r, theirs != 0 ? theirs : 1 + reason);
	wake_always(r->in.data, r->in.data_sleeper);
	wake_always(r->in.space, r->in.space_sleeper);
	wake_always(r->out.data, r->out.data_sleeper);
	wake_always(r->out.space, r->out.space_sleeper);
}

static void corrupt(ring *r)
{
	latch(r, 1 + RING_CORRUPT);
	ring_close(r, RING_CORRUPT);
}

/* writable reads the worker's tail once and accepts it only if it is consistent. */
static uint64_t writable(ring *r)
{
	uint64_t tail = atomic_load(r->out.tail);
	uint64_t used = r->out_head - tail;
	if (used > r->area || used > r->out_head - r->out_tail) {
		corrupt(r);
		return 0;
	}
	r->out_tail = tail;
	return r->area - used;
}

static void wait_for_space(ring *r, uint64_t min, int ms)
{
	uint32_t old = atomic_load(r->out.space);
	atomic_store(r->out.space_sleeper, 1);
	/* Check again: a worker that released space in between saw the flag, or this thread sees its
	 * tail. */
	if (ring_closed(r) != 0 || r->area - (r->out_head - atomic_load(r->out.tail)) >= min) {
		atomic_store(r->out.space_sleeper, 0);
		return;
	}
	futex_wait(r->out.space, old, ms);
}

void *ring_reserve(ring *r, size_t min, size_t *got, int timeout_ms)
{
	*got = 0;
	if (min > r->area)
		return NULL;
	if (min == 0)
		min = 1;
	int64_t deadline = timeout_ms > 0 ? now_ms() + timeout_ms : 0;
	for (;;) {
		if (ring_closed(r) != 0)
			return NULL;
		uint64_t n = writable(r);
		if (n >= min) {
			*got = (size_t)n;
			return r->out.buf + (r->out_head & (r->area - 1));
		}
		int ms = next_wait(timeout_ms, deadline, SPACE_LIMIT_MS);
		if (ms == 0)
			return NULL;
		wait_for_space(r, min, ms);
	}
}

void ring_commit(ring *r, size_t n)
{
	uint64_t most = r->area - (r->out_head - r->out_tail);
	if (n > most) /* a bug of the caller: never publish more than was reserved */
		n = (size_t)most;
	if (n == 0)
		return;
	r->out_head += n;
	atomic_store(r->out.head, r->out_head);
	signal_sleeper(r->out.data, r->out.data_sleeper);
}

static uint64_t readable(ring *r)
{
	uint64_t head = atomic_load(r->in.head);
	uint64_t n = head - r->in_tail;
	if (n > r->area || n < r->in_head - r->in_tail) {
		corrupt(r);
		return 0;
	}
	r->in_head = head;
	return n;
}

static void signal_space(ring *r)
{
	if (r->unsignalled > 0) {
		r->unsignalled = 0;
		signal_sleeper(r->in.space, r->in.space_sleeper);
	}
}

static int ready(ring *r, uint64_t min)
{
	return ring_closed(r) != 0 || atomic_load(&r->kicked) != 0 || atomic_load(r->in.head) - r->in_tail >= min;
}

static void sleep_for_data(ring *r, uint64_t min, int ms)
{
	uint32_t old = atomic_load(r->in.data);
	atomic_store(r->in.data_sleeper, 1);
	if (ready(r, min))
		atomic_store(r->in.data_sleeper, 0);
	else
		futex_wait(r->in.data, old, ms);
}

/* spin returns 1 when the data has arrived. The other end spins too (internal/shm/spin_linux.go),
 * for a shorter time: it waits for the program, not for a device or a network. */
static int spin(ring *r, uint64_t min, int64_t begin)
{
	do {
		for (int i = 0; i < 8; i++)
			if (ready(r, min))
				return 1;
		sched_yield();
	} while (now_ns() - begin < SPIN_NS);
	return 0;
}

static void wait_for_data(ring *r, uint64_t min, int ms)
{
	int64_t begin = now_ns();
	signal_space(r); /* the worker may need space before it can send */
	int spins = spin_begin(&r->spin);
	if (!spins || !spin(r, min, begin))
		sleep_for_data(r, min, ms);
	spin_end(&r->spin, spins, now_ns() - begin);
}

const void *ring_next(ring *r, size_t min, size_t *got, int timeout_ms)
{
	*got = 0;
	if (min > r->area)
		return NULL;
	if (min == 0)
		min = 1;
	int64_t deadline = timeout_ms > 0 ? now_ms() + timeout_ms : 0;
	for (;;) {
		/* Read before the head, so that bytes committed before the close are seen. */
		uint32_t closed = ring_closed(r);
		if (closed == 1 + RING_CORRUPT)
			return NULL;
		uint64_t n = readable(r);
		if (n >= min) {
			*got = (size_t)n;
			return r->in.buf + (r->in_tail & (r->area - 1));
		}
		if (closed != 0 || atomic_exchange(&r->kicked, 0) != 0)
			return NULL;
		int ms = next_wait(timeout_ms, deadline, DATA_LIMIT_MS);
		if (ms == 0)
			return NULL;
		wait_for_data(r, min, ms);
	}
}

void ring_release(ring *r, size_t n)
{
	if (n > r->in_head - r->in_tail)
		n = (size_t)(r->in_head - r->in_tail);
	r->in_tail += n;
	atomic_store(r->in.tail, r->in_tail);
	/* A sleeping worker is not woken for a few bytes. */
	r->unsignalled += n;
	if (r->unsignalled >= r->area / 4 || r->in_tail == r->in_head)
		signal_space(r);
}

void ring_kick(ring *r)
{
	atomic_store(&r->kicked, 1);
	wake_always(r->in.data, r->in.data_sleeper);
}

void ring_unmap(ring *r)
{
	int saved = errno;
	munmap(r->in.buf, 2 * r->area);
	munmap(r->out.buf, 2 * r->area);
	munmap(r->control, PAGE);
	free(r);
	errno = saved;
}
