/* link.c: the links, one for each lease, and their clocks. Layer: objects. */
#include "library.h"

#include <time.h>

struct library library = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct link *link_at(uint32_t index) { return &library.link[index]; }

uint64_t clock_ns(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* link_learn_clock measures the offset of the worker's clock, when times are first needed, since it costs a round trip. */
int32_t link_learn_clock(struct link *link) {
	uint64_t before = clock_ns(), theirs = 0;
	if (atomic_load(&link->clock_known))
		return 0;
	int32_t status = call_clock(link->session, &theirs);
	uint64_t after = clock_ns();
	if (status != 0)
		return status;
	/* A worker's time between our two readings means the same clock: no two machines started at the same time. */
	if (theirs < before || theirs > after)
		atomic_store(&link->clock_offset, (int64_t)(before + (after - before) / 2 - theirs));
	atomic_store(&link->clock_known, 1);
	return 0;
}

void links_share(void) {
	struct link *link;
	atomic_store(&library.shared, 1);
	FOR_LINKS(link, library.links)
		session_shared(link->session);
}
