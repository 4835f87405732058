/* futex.c: waiting on a word of this process. Layer: ring. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "futex.h"

#include <errno.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_PRIVATE = 0 | 128, WAKE_PRIVATE = 1 | 128 };

void futex_sleep(_Atomic uint32_t *word, uint32_t old, int ms) {
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};
	int saved = errno;
	syscall(SYS_futex, word, WAIT_PRIVATE, old, &ts, NULL, 0);
	errno = saved;
}

void futex_wake(_Atomic uint32_t *word) {
	int saved = errno;
	syscall(SYS_futex, word, WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

int64_t now_ms(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
