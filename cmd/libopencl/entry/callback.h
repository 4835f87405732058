/* callback.h: records when the callbacks of events are called. Layer: entry. */
#ifndef OUTBOARD_CALLBACK_H
#define OUTBOARD_CALLBACK_H

#include "api.h"

/* Has callbacks for complete events that are registered through the table recorded when they are called. */
void callback_wrap(struct _cl_icd_dispatch *);

#endif
