/* allocations.c: in a layer, the allocations of shared virtual memory: a copy between one of them and
 * the program's own memory is a transfer. Allocations for which there is no memory are not tracked.
 * Layer: entry. */
#include "allocations.h"

#include <pthread.h>
#include <stdlib.h>

struct allocation {
	struct allocation *next;
	const unsigned char *begin;
	size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;

void allocations_add(const void *p, size_t size) {
	struct allocation *a = malloc(sizeof *a);
	if (!a)
		return;
	pthread_mutex_lock(&lock);
	*a = (struct allocation){allocations, p, size};
	allocations = a;
	pthread_mutex_unlock(&lock);
}

int allocations_remove(const void *p) {
	pthread_mutex_lock(&lock);
	struct allocation **at = &allocations, *a;
	while ((a = *at) && a->begin != p)
		at = &a->next;
	if (a)
		*at = a->next;
	pthread_mutex_unlock(&lock);
	free(a);
	return a != NULL;
}

int allocations_contain(const void *p) {
	pthread_mutex_lock(&lock);
	const struct allocation *a = allocations;
	while (a && (size_t)((const unsigned char *)p - a->begin) >= a->size)
		a = a->next;
	pthread_mutex_unlock(&lock);
	return a != NULL;
}
