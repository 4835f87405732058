#include "outboard.h"

static uint8_t request[64 << 10];
static uint32_t calls;
static uint64_t state;

OUTBOARD_RESEED(seed) { state = seed; }

/* Answers with the sum of the request's bytes and the number of calls so far. */
OUTBOARD_ENTRY(handle) {
	int32_t size = outboard_request_read(request, sizeof request, 0);
	uint32_t answer[2] = {0, ++calls};
	for (int32_t i = 0; i < size; i++)
		answer[0] += request[i];
	return outboard_response_write(answer, sizeof answer);
}

/* Answers with a random number. */
OUTBOARD_ENTRY(roll) { return outboard_response_write(&state, sizeof state); }

/* Fails. */
OUTBOARD_ENTRY(fail) {
	outboard_response_write("no tide", 7);
	return 1;
}
