/* event.c: queries of events, waits, user events and callbacks. Layer: calls. */
#include "calls.h"

cl_int ob_clRetainEvent(cl_event e) { return object_retain(e); }

cl_int ob_clReleaseEvent(cl_event e) { return object_release(e); }

/* poll_status subscribes at the first poll; later polls only read the notices that have arrived. */
static int32_t poll_status(cl_event e) {
	int32_t status = event_status(e);
	if (status <= 0 || !e->queue)
		return status;
	event_watch(e);
	session_poll(e->queue->link->session);
	return event_status(e);
}

cl_int ob_clGetEventInfo(cl_event e, cl_event_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	switch (param_name) {
	case CL_EVENT_COMMAND_QUEUE:
		INFO(cl_command_queue, e->queue);
	case CL_EVENT_CONTEXT:
		INFO(cl_context, e->context);
	case CL_EVENT_COMMAND_TYPE:
		INFO(cl_command_type, e->command);
	case CL_EVENT_REFERENCE_COUNT:
		INFO(cl_uint, atomic_load(&e->o.refs));
	case CL_EVENT_COMMAND_EXECUTION_STATUS:
		INFO(cl_int, poll_status(e));
	}
	return CL_INVALID_VALUE;
}

/* fetch queries the worker for times that have not arrived, after subscribing to them. */
static cl_int fetch(cl_event e, cl_profiling_info param, cl_ulong *value) {
	struct blob raw = {NULL, 0};
	event_watch(e);
	cl_int status = call_clGetEventProfilingInfo(e->queue->link->session, e->o.id, param, &raw);
	if (status == CL_SUCCESS && raw.size == sizeof *value)
		memcpy(value, raw.data, sizeof *value);
	else if (status == CL_SUCCESS)
		status = CL_PROFILING_INFO_NOT_AVAILABLE;
	free(raw.data);
	return status;
}

cl_int ob_clGetEventProfilingInfo(cl_event e, cl_profiling_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	cl_ulong value = 0;
	if (!e->queue || !(e->queue->properties & CL_QUEUE_PROFILING_ENABLE))
		return CL_PROFILING_INFO_NOT_AVAILABLE;
	if (param_name < CL_PROFILING_COMMAND_QUEUED || param_name > CL_PROFILING_COMMAND_COMPLETE)
		return CL_INVALID_VALUE;
	if (!atomic_load(&e->timed))
		session_poll(e->queue->link->session);
	if (event_status(e) < 0)
		return CL_PROFILING_INFO_NOT_AVAILABLE;
	cl_int status = atomic_load(&e->timed) ? CL_SUCCESS : fetch(e, param_name, &value);
	if (status != CL_SUCCESS)
		return status;
	if (atomic_load(&e->timed))
		value = e->times[param_name - CL_PROFILING_COMMAND_QUEUED];
	return info_answer(&value, sizeof value, param_value_size, param_value, param_value_size_ret);
}

static cl_int check_list(cl_uint count, const cl_event *list) {
	if (count == 0 || !list)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < count; i++)
		if (!api_valid(list[i], KIND_EVENT))
			return CL_INVALID_EVENT;
	for (cl_uint i = 1; i < count; i++)
		if (list[i]->context != list[0]->context)
			return CL_INVALID_CONTEXT;
	return CL_SUCCESS;
}

cl_int ob_clWaitForEvents(cl_uint num_events, const cl_event *event_list) {
	cl_int status = check_list(num_events, event_list);
	if (status != CL_SUCCESS)
		return status;
	status = event_wait_all(num_events, event_list);
	for (cl_uint i = 0; i < num_events; i++) {
		if (event_status(event_list[i]) < 0 && status == CL_SUCCESS)
			status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
		int32_t sticky = event_list[i]->queue ? queue_take_sticky(event_list[i]->queue) : 0;
		status = status ? status : sticky;
	}
	return status;
}

cl_event ob_clCreateUserEvent(cl_context context, cl_int *errcode_ret) {
	cl_event e = event_new(context, NULL, CL_COMMAND_USER, context->o.links);
	cl_int status = e ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	struct link *link;
	if (e)
		FOR_LINKS(link, e->o.links) {
			session_shared(link->session); /* a worker that blocks for one thread does not receive the event from another */
			cl_int one = send_clCreateUserEvent(link->session, NULL, context->o.id, e->o.id);
			status = one ? one : status;
		}
	if (set_errcode(errcode_ret, status) == CL_SUCCESS)
		return e;
	if (e)
		object_drop(e);
	return NULL;
}

cl_int ob_clSetUserEventStatus(cl_event e, cl_int execution_status) {
	if (e->queue)
		return CL_INVALID_EVENT;
	if (execution_status > CL_COMPLETE)
		return CL_INVALID_VALUE;
	if (atomic_exchange(&e->watched, 1) != 0)
		return CL_INVALID_OPERATION;
	cl_int status = CL_SUCCESS;
	struct link *link;
	FOR_LINKS(link, e->o.links) {
		cl_int one = send_clSetUserEventStatus(link->session, NULL, e->o.id, execution_status);
		status = one ? one : status;
	}
	event_set_status(e, execution_status);
	FOR_LINKS(link, e->o.links)
		session_wake(link->session);
	return status;
}

cl_int ob_clSetEventCallback(cl_event e, cl_int type, PFN_clSetEventCallback notify, void *user_data) {
	if (!notify || type < CL_COMPLETE || type > CL_SUBMITTED)
		return CL_INVALID_VALUE;
	return event_add_callback(e, type, notify, user_data);
}
