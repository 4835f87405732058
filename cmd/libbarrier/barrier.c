/* barrier.c: a barrier for ggml's threads that sleeps after a long wait.
 *
 * The barrier of llama.cpp's library (ggml-cpu.c, built without OpenMP) spins until all threads
 * have arrived. On a machine whose cores other processes use too, the awaited thread has often been
 * preempted, and a spinning thread occupies the core that it needs, for a time slice at each of
 * some 250 barriers of a token. This barrier spins briefly, then yields its core to other threads
 * between short spins, and finally sleeps on a futex. When it is loaded before ggml's library, with
 * global symbols, it replaces ggml_barrier there, which is called through the procedure linkage
 * table.
 *
 * Where no other thread needs the core, sched_yield returns within half a microsecond and the
 * thread continues to spin. Sleeping that early would be expensive: threads wait for one another
 * for up to some 100 us where the parts of a matrix product differ, and waking a sleeper takes as
 * long. A limit of spinning that shrank with each such wait made eight sequences 1.6 times
 * slower. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WAIT_PRIVATE = 0 | 128, WAKE_PRIVATE = 1 | 128 };

/* The wait before a thread sleeps: BRIEF pauses, then TURNS times a sched_yield and BETWEEN pauses.
 * A pause takes 10 to 50 ns, so a thread sleeps after 1 to 4 ms. */
enum { BRIEF = 256, TURNS = 1000, BETWEEN = 64 };

/* pool is the part of ggml_threadpool that the barrier uses. packaging/llama refuses a library
 * whose ggml_barrier is not the machine code from which these offsets were read. */
struct pool {
	char before[0x68];
	_Atomic int32_t graph; /* the low 16 bits: number of computing threads */
	char between[0x80 - 0x6c];
	_Atomic int32_t arrived;
	char between_lines[0xc0 - 0x84];
	_Atomic int32_t passed; /* number of barriers that all threads have reached */
};

_Static_assert(offsetof(struct pool, graph) == 0x68, "n_graph");
_Static_assert(offsetof(struct pool, arrived) == 0x80, "n_barrier");
_Static_assert(offsetof(struct pool, passed) == 0xc0, "n_barrier_passed");

static _Atomic int32_t sleepers; /* threads of all pools that sleep or are about to */

static void futex(_Atomic int32_t *word, int operation, int value) {
	int saved = errno;
	syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
	errno = saved;
}

static void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/* spin waits for a change of word from old, and reports whether it occurred within that many
 * pauses. */
static int spin(_Atomic int32_t *word, int32_t old, int pauses) {
	for (int i = 0; i < pauses; i++) {
		if (atomic_load_explicit(word, memory_order_acquire) != old)
			return 1;
		relax();
	}
	return 0;
}

/* poll waits for a change of word from old, and reports whether it occurred before the thread must
 * sleep. */
static int poll(_Atomic int32_t *word, int32_t old) {
	if (spin(word, old, BRIEF))
		return 1;
	for (int i = 0; i < TURNS; i++) {
		sched_yield();
		if (spin(word, old, BETWEEN))
			return 1;
	}
	return 0;
}

/* ggml_barrier returns when all threads that compute the pool's graph have called it. */
__attribute__((visibility("default"))) void ggml_barrier(struct pool *p) {
	int32_t threads = atomic_load_explicit(&p->graph, memory_order_relaxed) & 0xffff;
	if (threads == 1)
		return;
	int32_t old = atomic_load_explicit(&p->passed, memory_order_relaxed);
	if (atomic_fetch_add(&p->arrived, 1) == threads - 1) {
		atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
		atomic_fetch_add(&p->passed, 1);
		/* Sequential consistency: either this thread sees the sleeper, or the sleeper sees
		 * passed. */
		if (atomic_load(&sleepers) > 0)
			futex(&p->passed, WAKE_PRIVATE, INT_MAX);
		return;
	}
	if (poll(&p->passed, old))
		return;
	atomic_fetch_add(&sleepers, 1);
	while (atomic_load(&p->passed) == old)
		futex(&p->passed, WAIT_PRIVATE, old);
	atomic_fetch_sub(&sleepers, 1);
}
