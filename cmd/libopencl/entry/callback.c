/* callback.c: records when the callbacks of events are called: a program may wait for them in ways of its
 * own. Layer: entry. */
#include "callback.h"

#include "entry.h"

#include <stdlib.h>

struct callback {
	uint16_t op;
	void(CL_CALLBACK *notify)(cl_event, cl_int, void *);
	void *user_data;
};

static cl_api_clSetEventCallback set_callback;

static void record_notice(cl_event event, uint16_t op) {
	struct record_call call;
	if (!record_begin(&call, op))
		return; /* within a call of the thread */
	record_returned(&call);
	call.head.flags |= RECORD_NOTICE;
	call.event = (uintptr_t)event;
	record_end(&call, 0, NULL);
}

static void CL_CALLBACK notified(cl_event event, cl_int status, void *arg) {
	struct callback c = *(struct callback *)arg;
	free(arg);
	record_notice(event, c.op);
	c.notify(event, status, c.user_data);
}

static cl_int CL_API_CALL set_recorded(cl_event event, cl_int type, void(CL_CALLBACK *notify)(cl_event, cl_int, void *), void *user_data) {
	struct callback *c = notify && type == CL_COMPLETE && record_current ? malloc(sizeof *c) : NULL;
	if (!c)
		return set_callback(event, type, notify, user_data);
	*c = (struct callback){record_current->head.op, notify, user_data};
	cl_int status = set_callback(event, type, notified, c);
	if (status != CL_SUCCESS)
		free(c);
	return status;
}

void callback_wrap(struct _cl_icd_dispatch *table) {
	set_callback = table->clSetEventCallback;
	if (set_callback)
		table->clSetEventCallback = set_recorded;
}
