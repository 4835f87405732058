/* spin.h: decides whether a wait for data begins by spinning (adaptive spinning). Layer: ring.
 *
 * An idle processor takes 20 to 40 us to wake on a virtual machine, longer than many replies take,
 * so while recent waits were short a wait may begin by polling and yielding the processor. On a
 * busy machine that is harmful: the spinning thread uses up its share of a processor that the other
 * end waits for. So both methods are measured, and the slower one is tried now and then; sleeping
 * more rarely, since on an idle machine it takes ten times as long. A wait sleeps at once while
 * waits that spin take more than SPIN_MARGIN times as long: a few disturbed waits have no effect. */
#ifndef OUTBOARD_SPIN_H
#define OUTBOARD_SPIN_H

#include <stdint.h>

enum { SPIN_NS = 200000, SHORT_NS = 300000, SPIN_STEP = 4, MAX_SPIN_CREDIT = 2 * SPIN_STEP };
enum { SPIN_SMOOTHING = 4, SPIN_MARGIN = 2 };
enum { TRY_SPIN_EVERY = 32, TRY_SLEEP_EVERY = 512 }; /* waits, while they sleep or spin */

/* The zero value spins after the first short wait. */
struct spin {
	int credit;         /* above 0 while recent waits were short */
	unsigned waits;     /* number of waits that could have spun */
	int64_t average[2]; /* moving averages, ns: slept at once, spun; up to SHORT_NS per wait */
};

/* True when the wait that begins now should spin. */
static inline int spin_begin(struct spin *s)
{
	if (s->credit <= 0)
		return 0;
	s->waits++;
	if (s->average[1] <= SPIN_MARGIN * s->average[0])
		return s->waits % TRY_SLEEP_EVERY != 0;
	return s->waits % TRY_SPIN_EVERY == 0;
}

/* Records the duration of a wait, and whether it has spun. */
static inline void spin_end(struct spin *s, int spun, int64_t waited_ns)
{
	int64_t counted = waited_ns < SHORT_NS ? waited_ns : SHORT_NS;
	s->average[spun] += (counted - s->average[spun]) / SPIN_SMOOTHING;
	if (waited_ns < SHORT_NS)
		s->credit += s->credit < MAX_SPIN_CREDIT;
	else
		s->credit = s->credit > SPIN_STEP ? s->credit - SPIN_STEP : 0;
}

#endif
