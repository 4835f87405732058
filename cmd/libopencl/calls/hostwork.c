/* hostwork.c: commands that the program's own process executes. Layer: calls.
 *
 * The command is two markers. When the first one is complete, the command may run; the second one,
 * whose event the program gets, waits for a user event that is set when the work is done. */
#include "calls.h"

struct work {
	void (*run)(void *arg, int32_t status);
	void *arg;
	cl_event done; /* user event; owned */
};

static void work_due(void *arg, int32_t status) {
	struct work *w = arg;
	w->run(w->arg, status);
	(void)ob_clSetUserEventStatus(w->done, status < 0 ? status : CL_COMPLETE); /* a dead link has failed the command */
	object_release(w->done);
	free(w);
}

/* Takes ownership of w when it succeeds. */
static int32_t enqueue(cl_command_queue queue, cl_command_type type, struct work *w, cl_event turn, cl_event *event) {
	int32_t status = enqueue_mark(queue, type, 1, &w->done, event);
	if (status != 0)
		return status;
	status = event_on_complete(turn, work_due, w);
	if (status != 0 && event)
		object_release(*event);
	return status;
}

int32_t hostwork_enqueue(cl_command_queue queue, cl_command_type type, void (*run)(void *, int32_t), void *arg, cl_uint count, const cl_event *list, cl_event *event) {
	cl_event turn = NULL;
	int32_t status = enqueue_mark(queue, type, count, list, &turn);
	if (status != 0)
		return status;
	struct work *w = malloc(sizeof *w);
	if (w)
		*w = (struct work){run, arg, ob_clCreateUserEvent(queue->context, NULL)};
	status = w && w->done ? enqueue(queue, type, w, turn, event) : CL_OUT_OF_HOST_MEMORY;
	object_release(turn);
	if (status != 0 && w && w->done) {
		(void)ob_clSetUserEventStatus(w->done, status);
		object_release(w->done);
	}
	if (status != 0)
		free(w);
	return status;
}
