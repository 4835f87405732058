/* without.c: runs without the optimisations that hide the distance of the device, to check the
 * predictions of `outboard plan --what-if`. OUTBOARD_WITHOUT lists their names, such as
 * async,shadow. Layer: entry. */
#include "entry.h"
#include "library.h"
#include "zz_wire.h"

#include <stdlib.h>

int entry_without;

void entry_read_without(void) {
	const char *names = getenv("OUTBOARD_WITHOUT");
	if (names && strstr(names, "async"))
		entry_without |= WITHOUT_ASYNC;
	if (names && strstr(names, "shadow"))
		entry_without |= WITHOUT_SHADOW;
	if (names && strstr(names, "locality"))
		entry_without |= WITHOUT_LOCALITY;
	library.resend_unchanged_args = (entry_without & WITHOUT_LOCALITY) != 0;
}

uint64_t entry_serial(void) { return session_serial(NULL); }

/* Called by the thread that made the call, which holds no lock. A request without effect is
 * answered after all earlier ones. */
void entry_sent(uint64_t before, int kind) {
	int wait = entry_without & WITHOUT_ASYNC || (kind == CALL_CREATES && entry_without & WITHOUT_SHADOW);
	uint64_t sent = entry_serial(), clock;
	struct link *link;
	if (sent == before) /* the library answered the call itself */
		wait = kind == CALL_QUERIES && entry_without & WITHOUT_LOCALITY;
	else if (sent == session_answered())
		wait = 0;
	if (!wait || session_dispatching())
		return;
	FOR_LINKS(link, library.links)
		(void)call_clock(link->session, &clock); /* a dead link fails in the next call */
}
