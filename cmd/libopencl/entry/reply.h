/* reply.h: in a layer, the size of a worker's replies. Layer: entry. */
#ifndef OUTBOARD_REPLY_H
#define OUTBOARD_REPLY_H

#include "api.h"

/* Returns the size of the facts about a built program and its kernels, which the reply to a build
 * brings. */
uint64_t facts_size(cl_program);

#endif
