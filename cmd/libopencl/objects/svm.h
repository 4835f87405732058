/* svm.h: shared virtual memory (coarse-grained). Layer: objects.
 *
 * An allocation is a root memory object that the program does not see: a buffer over the worker's allocation, at the worker's
 * address, where the program has pages of its own. Contents cross when the program maps and unmaps.
 */
#ifndef OUTBOARD_SVM_H
#define OUTBOARD_SVM_H

#include "memory.h"

/* Reserves the pages that hold the allocation's bytes at the address in this process, and lists the allocation. 0 when they are in
 * use, or are none that a worker may choose. */
int svm_place(cl_mem, uint64_t address);
/* Removes the pages, after the allocation has left the list. */
void svm_unplace(cl_mem);
/* The context's allocation that has `size` bytes at p, held, and where in it they begin; NULL when there is none. */
cl_mem svm_find(cl_context, const void *p, size_t size, size_t *offset);
/* Takes the allocation that begins at p off the list; the caller gets the list's reference. NULL when there is none. */
cl_mem svm_remove(cl_context, const void *p);

#endif
