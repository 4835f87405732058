/* request.h: in a layer, the size of a build's request. Layer: entry. */
#ifndef OUTBOARD_REQUEST_H
#define OUTBOARD_REQUEST_H

#include "sources.h"

/* Returns how many bytes a leased device's library sends with a build in addition to the program's
 * options, to compile sources: an option of its own, and the files that they may include. */
uint64_t request_added(const char *options, const struct program_sources *);

/* Returns the size of the names of a compile step's headers. */
uint64_t request_names(cl_uint count, const char **names);

#endif
