/* allocations.h: in a layer, the allocations of shared virtual memory. Layer: entry. */
#ifndef OUTBOARD_ALLOCATIONS_H
#define OUTBOARD_ALLOCATIONS_H

#include <stddef.h>

/* Adds an allocation. */
void allocations_add(const void *, size_t size);
/* Removes the allocation that begins at an address. Returns 0 when there is none. */
int allocations_remove(const void *);
/* Returns 1 when an allocation contains the address. */
int allocations_contain(const void *);

#endif
