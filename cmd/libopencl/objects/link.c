/* link.c: the links, one for each lease, and their clocks. Layer: objects. */
#include "library.h"
#include "record.h"
#include "zz_wire.h"

#include <time.h>

struct library library = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct link *link_at(uint32_t index) { return &library.link[index]; }

uint64_t clock_ns(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* link_learn_clock measures the offset of the worker's clock when times are first needed, since
 * that costs a round trip. */
int32_t link_learn_clock(struct link *link) {
	uint64_t before = clock_ns(), theirs = 0;
	if (atomic_load(&link->clock_known))
		return 0;
	int32_t status = call_clock(link->session, &theirs);
	uint64_t after = clock_ns();
	if (status != 0)
		return status;
	/* A worker's time between the two local readings means the same clock: no two machines started
	 * at the same time. */
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

/* ---- recording */

enum { PINGS = 16, RECORD_END_MS = 2000 };

/* The pings also measure the link's round trip. */
void link_record(struct link *link) {
	if (!record_on() || send_record(link->session, NULL, 1) != 0)
		return;
	for (int i = 0; i < PINGS; i++) {
		uint64_t theirs = 0, before = clock_ns();
		if (call_clock(link->session, &theirs) != 0)
			return;
		record_clock(link->index, theirs, before, clock_ns());
	}
}

struct recorded_wait {
	struct link *link;
	uint64_t deadline;
};

static int recorded_or_late(void *arg) {
	struct recorded_wait *w = arg;
	return atomic_load(&w->link->recorded) || clock_ns() > w->deadline;
}

/* Runs at exit. A thread that exits from within a call would wait for itself. */
void link_record_end(struct link *link) {
	struct recorded_wait wait = {link, clock_ns() + UINT64_C(1000000) * RECORD_END_MS};
	if (record_on() && !record_current && !session_dead(link->session) && send_record(link->session, NULL, 0) == 0)
		(void)session_wait_until(link->session, recorded_or_late, &wait);
}
