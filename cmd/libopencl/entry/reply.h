/* reply.h: in a layer, the size of a worker's replies. Layer: entry. */
#ifndef OUTBOARD_REPLY_H
#define OUTBOARD_REPLY_H

#include "sources.h"

/* Returns the size of the facts about a built program and its kernels, which the reply to a build
 * brings; the sources have its kernels. */
uint64_t facts_size(cl_program, const struct program_sources *);

#endif
