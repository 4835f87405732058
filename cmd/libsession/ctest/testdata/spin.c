/* spin.c: checks when a wait spins, after given durations of earlier waits. */
#include "spin.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
			exit(1); \
		} \
	} while (0)

enum { WAITS = 10000, LONG = 1000000 };

/* Runs waits of the given durations, in ns, with a spin and without. Returns how many of them
 * spun. */
static int run(struct spin *s, int waits, int64_t with_spin, int64_t without) {
	int spun = 0;
	for (int i = 0; i < waits; i++) {
		int spins = spin_begin(s);
		spun += spins;
		spin_end(s, spins, spins ? with_spin : without);
	}
	return spun;
}

int main(void) {
	struct spin s = {0};
	CHECK(!spin_begin(&s)); /* nothing is known yet */
	CHECK(run(&s, WAITS, 20000, 50000) > WAITS - 2 * WAITS / TRY_SLEEP_EVERY); /* an idle machine */
	CHECK(run(&s, WAITS, 190000, 60000) < 2 * WAITS / TRY_SPIN_EVERY);        /* a busy one */
	CHECK(run(&s, WAITS, 20000, 50000) > WAITS - 8 * WAITS / TRY_SLEEP_EVERY); /* idle again */
	CHECK(run(&s, WAITS, LONG, LONG) < 10);                                   /* long waits never spin */
	CHECK(run(&s, WAITS, 20000, 50000) > WAITS / 2);                          /* short ones do again */
	return 0;
}
