/* queues.c: the table of queues, for the Go test. Prints nothing when all holds. */
#include "queues.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static cl_command_queue at(size_t i) { return (cl_command_queue)(uintptr_t)(0x1000 + 16 * i); }

static int failures;
static void check(int holds, const char *what) {
	if (!holds)
		failures += printf("%s\n", what) > 0;
}

static const cl_queue_properties sized[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_SIZE, 64, 0};

static void requests(void) {
	struct queue_request r;
	check(!queues_find(at(0), &r), "a queue that was never added is found");
	queues_add(at(0), CL_QUEUE_PROFILING_ENABLE, sized);
	check(queues_find(at(0), &r) && r.listed == sizeof sized && memcmp(r.list, sized, sizeof sized) == 0, "the list differs");
	queues_add(at(0), 0, NULL);
	check(queues_find(at(0), &r) && r.listed == 0 && r.properties == 0, "a queue does not replace the one at its address");
	queues_add(at(0), 0, sized + 4);
	check(queues_find(at(0), &r) && r.listed == sizeof *sized && r.list[0] == 0, "an empty list differs from none");
	cl_queue_properties endless[QUEUE_WORDS];
	for (size_t i = 0; i < QUEUE_WORDS; i++)
		endless[i] = 1;
	queues_add(at(0), 0, endless);
	check(queues_find(at(0), &r) && r.listed <= sizeof r.list, "a list exceeds its room");
	queues_remove(at(0));
	check(!queues_find(at(0), &r), "a removed queue is found");
	queues_remove(at(0));
	queues_release(at(0));
	queues_retain(at(0));
}

/* Creates and releases queues, all at other addresses than those before. */
static void churn(size_t from, size_t count) {
	for (size_t i = from; i < from + count; i++) {
		queues_add(at(i), 0, sized);
		queues_release(at(i));
	}
}

static void releases(void) {
	struct queue_request r;
	queues_add(at(1), 0, NULL);
	queues_retain(at(1));
	queues_release(at(1));
	churn(10, RELEASED_QUEUES);
	check(queues_find(at(1), &r), "a queue with a reference is forgotten");
	queues_release(at(1));
	check(queues_find(at(1), &r), "a queue that was just released is forgotten");
	queues_add(at(1), CL_QUEUE_PROFILING_ENABLE, NULL); /* at the address of the released one */
	churn(10000, 5 * RELEASED_QUEUES);
	check(queues_find(at(1), &r) && r.properties == CL_QUEUE_PROFILING_ENABLE, "a live queue is forgotten");
	size_t kept = 0;
	for (size_t i = 10; i < 10000 + 5 * RELEASED_QUEUES; i++)
		kept += (size_t)queues_find(at(i), &r);
	check(kept == RELEASED_QUEUES, "released queues are not forgotten");
	check(queues_find(at(10000 + 5 * RELEASED_QUEUES - 1), &r), "the last released queue is forgotten");
}

int main(void) {
	requests();
	releases();
	return failures != 0;
}
