/* futex.h: waiting on a word of this process, and the clock that bounds the wait. Layer: ring.
 *
 * No function is a cancellation point or changes errno.
 */
#ifndef OUTBOARD_FUTEX_H
#define OUTBOARD_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word is old, at most ms milliseconds. */
void futex_sleep(_Atomic uint32_t *word, uint32_t old, int ms);
void futex_wake(_Atomic uint32_t *word);
/* Milliseconds of CLOCK_MONOTONIC. */
int64_t now_ms(void);

#endif
