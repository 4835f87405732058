/* queues.h: the properties that the program requested for its queues. Layer: entry. */
#ifndef OUTBOARD_QUEUES_H
#define OUTBOARD_QUEUES_H

#include "api.h"

/* QUEUE_WORDS is more than a property list that drivers accept has; RELEASED_QUEUES is the number
 * of released queues that are kept, for the events that outlive them. */
enum { QUEUE_WORDS = 64, RELEASED_QUEUES = 1024 };

struct queue_request {
	cl_command_queue_properties properties;
	size_t listed; /* bytes of list; 0 for a queue that was created without a list */
	cl_queue_properties list[QUEUE_WORDS];
};

/* Adds a queue with one reference, or replaces a released one at its address. The list may be
 * NULL. */
void queues_add(cl_command_queue, cl_command_queue_properties, const cl_queue_properties *list);
/* Removes a released queue at the address of one that is not added. */
void queues_remove(cl_command_queue);
/* Count the program's references. queues_release is called before the driver releases the queue:
 * afterwards another thread may get a queue at its address. */
void queues_retain(cl_command_queue);
void queues_release(cl_command_queue);
/* Returns 1 for a queue that has been added, and what the program requested. */
int queues_find(cl_command_queue, struct queue_request *);

#endif
