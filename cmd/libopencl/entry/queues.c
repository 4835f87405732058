/* queues.c: the table of the program's queues, by address. A queue remains in it until it is
 * replaced, or until RELEASED_QUEUES others have been released after it. Layer: entry. */
#include "queues.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024 };

struct entry {
	struct entry *next;
	cl_command_queue queue;
	cl_uint references;
	cl_command_queue_properties properties;
	size_t listed;
	cl_queue_properties list[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *buckets[BUCKETS];
/* The released queues, a ring; a slot whose queue has been replaced or removed is NULL. */
static struct entry *released[RELEASED_QUEUES];
static size_t oldest;

/* Returns the link that points to the queue's entry, or the NULL at the end of its bucket. */
static struct entry **link_of(cl_command_queue queue) {
	struct entry **at = &buckets[((uintptr_t)queue * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
	while (*at && (*at)->queue != queue)
		at = &(*at)->next;
	return at;
}

static void unlink_entry(struct entry **at) {
	struct entry *e = *at;
	for (size_t i = 0; e->references == 0 && i < RELEASED_QUEUES; i++)
		if (released[i] == e)
			released[i] = NULL;
	*at = e->next;
	free(e);
}

void queues_remove(cl_command_queue queue) {
	pthread_mutex_lock(&lock);
	struct entry **at = link_of(queue);
	if (*at)
		unlink_entry(at);
	pthread_mutex_unlock(&lock);
}

/* Returns the number of words of a list, with its end; at most QUEUE_WORDS. */
static size_t words_of(const cl_queue_properties *list) {
	size_t n = 0;
	while (list && n + 2 < QUEUE_WORDS && list[n] != 0)
		n += 2;
	return list ? n + 1 : 0;
}

void queues_add(cl_command_queue queue, cl_command_queue_properties properties, const cl_queue_properties *list) {
	size_t size = words_of(list) * sizeof *list;
	struct entry *e = malloc(sizeof *e + size);
	if (e)
		*e = (struct entry){.queue = queue, .references = 1, .properties = properties, .listed = size};
	if (e && size)
		memcpy(e->list, list, size);
	pthread_mutex_lock(&lock);
	struct entry **at = link_of(queue);
	if (*at)
		unlink_entry(at);
	at = link_of(queue);
	if (e)
		*at = e;
	pthread_mutex_unlock(&lock);
}

void queues_retain(cl_command_queue queue) {
	pthread_mutex_lock(&lock);
	struct entry *e = *link_of(queue);
	if (e && e->references)
		e->references++;
	pthread_mutex_unlock(&lock);
}

void queues_release(cl_command_queue queue) {
	pthread_mutex_lock(&lock);
	struct entry *e = *link_of(queue);
	if (e && e->references && --e->references == 0) {
		if (released[oldest])
			unlink_entry(link_of(released[oldest]->queue));
		released[oldest] = e;
		oldest = (oldest + 1) % RELEASED_QUEUES;
	}
	pthread_mutex_unlock(&lock);
}

int queues_find(cl_command_queue queue, struct queue_request *request) {
	pthread_mutex_lock(&lock);
	struct entry *e = *link_of(queue);
	if (e) {
		request->properties = e->properties;
		request->listed = e->listed;
		memcpy(request->list, e->list, e->listed);
	}
	pthread_mutex_unlock(&lock);
	return e != NULL;
}
