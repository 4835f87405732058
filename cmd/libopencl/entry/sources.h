/* sources.h: in a layer, the texts of programs that the driver has. Layer: entry. */
#ifndef OUTBOARD_SOURCES_H
#define OUTBOARD_SOURCES_H

#include "api.h"
#include "include.h"

struct program_sources {
	struct include_source *all; /* the texts end with a zero, beyond their size */
	size_t count;
};

/* Returns the sources of a program and of others from which it is built; of those that have one. */
struct program_sources sources_of(cl_program, cl_uint count, const cl_program *others);
void sources_free(struct program_sources *);

/* Returns a text about a program, to be freed, or NULL. */
char *program_text(cl_program, cl_program_info);

#endif
