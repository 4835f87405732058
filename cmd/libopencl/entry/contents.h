/* contents.h: the memory objects whose contents a leased device's library would hold in the
 * program's mapped memory. Layer: entry. */
#ifndef OUTBOARD_CONTENTS_H
#define OUTBOARD_CONTENTS_H

#include "api.h"

/* Adds an object, or replaces the one that was at its address. whole is its size in bytes, for an
 * image in pixels; 0: unknown. current says that a map need not read its contents. */
void contents_created(cl_mem, cl_mem_flags, uint64_t whole, int current);
/* Adds an object in the storage of its parent. */
void contents_part(cl_mem part, cl_mem parent, cl_mem_flags);
/* A command writes the object. */
void contents_written(cl_mem);

/* Adds a kernel without arguments, or replaces the one that was at its address. */
void contents_kernel(cl_kernel);
/* Sets a kernel's argument; NULL: it is no memory object. Returns the number of an object that is
 * known, 0 for any other value. */
uint64_t contents_argument(cl_kernel, cl_uint index, cl_mem);
/* A launch writes the kernel's arguments, except those that it can only read. */
void contents_launched(cl_kernel);

/* Records a map of a region, whose size is in the unit of `whole`. Returns 1 when the library would
 * read nothing although the flags ask for the contents. */
int contents_mapped(cl_mem, const void *pointer, cl_map_flags, int blocking, uint64_t region);
/* Records the unmap, which writes the region back if the map allows writes. */
void contents_unmapped(const void *pointer);

#endif
