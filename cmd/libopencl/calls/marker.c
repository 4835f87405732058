/* marker.c: markers and barriers of OpenCL 1.0 and 1.1. Layer: calls. */
#include "calls.h"

int32_t enqueue_mark(cl_command_queue queue, cl_command_type type, cl_uint count, const cl_event *list, cl_event *event) {
	struct command c;
	int32_t status = command_begin(&c, queue, type, count, list, event);
	return status ? status : command_end(&c, command_marks(&c));
}

static int32_t enqueue_barrier(cl_command_queue q, cl_uint count, const cl_event *list) {
	struct command c;
	int32_t status = command_begin(&c, q, CL_COMMAND_BARRIER, count, list, NULL);
	if (status != 0)
		return status;
	status = send_clEnqueueBarrierWithWaitList(c.session, NULL, api_id(q), c.waits, c.wait_count, c.event);
	return command_end(&c, status);
}

cl_int ob_clEnqueueMarker(cl_command_queue q, cl_event *event) {
	return event ? enqueue_mark(q, CL_COMMAND_MARKER, 0, NULL, event) : CL_INVALID_VALUE;
}

cl_int ob_clEnqueueBarrier(cl_command_queue q) { return enqueue_barrier(q, 0, NULL); }

cl_int ob_clEnqueueWaitForEvents(cl_command_queue q, cl_uint num_events, const cl_event *event_list) {
	if (num_events == 0 || !event_list)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < num_events; i++)
		if (!api_valid(event_list[i], KIND_EVENT))
			return CL_INVALID_EVENT;
	return enqueue_barrier(q, num_events, event_list);
}
