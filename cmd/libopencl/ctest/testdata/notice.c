/* notice.c: notices of a worker about commands and objects that are not its own have no effect. The
 * links have no sessions: notices neither send nor wait. */
#include "calls.h"

#include "library.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "notice.c:%d: %s\n", __LINE__, #condition); \
			return 1; \
		} \
	} while (0)

static void nothing(void *object) { (void)object; }

/* says delivers a notice of words from a link. */
static void says(struct link *link, uint16_t op, const uint64_t *words, size_t count) {
	notice_receive(link, &(struct notice){.op = op, .body = (const unsigned char *)words, .size = 8 * count});
}

int main(void) {
	struct link links[2] = {{.index = 0, .bit = 1}, {.index = 1, .bit = 2}};
	cl_context context = object_new(sizeof *context, KIND_CONTEXT, 3, nothing);
	cl_command_queue queue = object_new(sizeof *queue, KIND_QUEUE, 1, nothing);
	pthread_mutex_init(&context->lock, NULL);
	queue->context = context;
	queue->link = &links[0];
	cl_event own = event_new(context, queue, CL_COMMAND_MARKER, 1);
	cl_event bridged = event_new(context, queue, CL_COMMAND_MARKER, 3); /* the other link has a copy */
	cl_event user = event_new(context, NULL, CL_COMMAND_USER, 3);
	cl_event all[] = {own, bridged, user};
	int32_t before[3];
	for (int i = 0; i < 3; i++)
		before[i] = atomic_load(&all[i]->status);
	const uint64_t absent = ~0ull;
	for (int i = 0; i < 3; i++) {
		says(&links[1], OP_event, (uint64_t[]){all[i]->o.id, CL_COMPLETE, absent}, 3);
		says(&links[1], OP_event, (uint64_t[]){all[i]->o.id, (uint32_t)-5, absent}, 3);
		/* failed: serial, op, status, queue, event, object */
		for (size_t n = 3; n <= 8; n++)
			says(&links[1], OP_failed, (uint64_t[]){1, 0x44, (uint32_t)-5, queue->o.id, all[i]->o.id, queue->o.id, 0, 0}, n);
		CHECK(atomic_load(&all[i]->status) == before[i]);
	}
	CHECK(atomic_load(&queue->sticky) == 0 && atomic_load(&queue->o.failed) == 0);
	/* Notices about the worker's own events still count, except for events that the program itself
	 * completes. */
	says(&links[0], OP_event, (uint64_t[]){user->o.id, CL_COMPLETE, absent}, 3);
	CHECK(atomic_load(&user->status) == before[2]);
	says(&links[0], OP_event, (uint64_t[]){own->o.id, CL_COMPLETE, absent}, 3);
	says(&links[0], OP_event, (uint64_t[]){bridged->o.id, CL_COMPLETE, absent}, 3);
	CHECK(atomic_load(&own->status) == CL_COMPLETE && atomic_load(&bridged->status) == CL_COMPLETE);
	/* A line for standard error is printed without characters that a terminal would interpret. */
	int ends[2], saved = dup(2);
	CHECK(pipe(ends) == 0 && dup2(ends[1], 2) == 2);
	unsigned char body[] = {0, 0, 0, 0, 0, 0, 0, 0, 'a', 0x1b, '[', 0xc2, 0x9b, 0xc3, 0x9f, '\n'};
	body[0] = sizeof body - 8;
	notice_receive(&links[0], &(struct notice){.op = OP_diagnostic, .body = body, .size = sizeof body});
	dup2(saved, 2);
	char line[16];
	ssize_t size = read(ends[0], line, sizeof line);
	CHECK(size == 8 && memcmp(line, "a?[\xc2?\xc3\x9f\n", 8) == 0);
	puts("ok");
	return 0;
}
