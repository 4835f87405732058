/* svm.h: shared virtual memory (coarse-grained). Layer: objects.
 *
 * An allocation is a root memory object that is not visible to the program: a buffer over the
 * worker's allocation, at the worker's address, where the program has pages of its own. Contents
 * are transferred when the program maps and unmaps. */
#ifndef OUTBOARD_SVM_H
#define OUTBOARD_SVM_H

#include "memory.h"

/* Reserves the pages that hold the allocation's bytes at the address in this process, and lists the
 * allocation. Returns 0 when they are in use, or when no worker may choose them. */
int svm_place(cl_mem, uint64_t address);
/* Removes the pages, after the allocation has left the list. */
void svm_unplace(cl_mem);
/* Returns the context's allocation that has `size` bytes at p, held, and their offset in it; NULL
 * when there is none. */
cl_mem svm_find(cl_context, const void *p, size_t size, size_t *offset);
/* Removes the allocation that begins at p from the list; the caller gets the list's reference.
 * Returns NULL when there is none. */
cl_mem svm_remove(cl_context, const void *p);

#endif
