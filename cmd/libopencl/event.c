/* event.c: events. What is known of one comes by notices, by replies that imply it, or from the program itself. */
#include "library.h"

struct event_callback {
	struct event_callback *next;
	cl_event event; /* held */
	cl_int type;    /* CL_SUBMITTED, CL_RUNNING or CL_COMPLETE */
	cl_int status;  /* what it is told */
	PFN_clSetEventCallback notify;
	void *user_data;
	void (*run)(void *, int32_t); /* our own, instead of notify */
};

/* home is the link that knows most about the event. */
static struct link *home(cl_event e) { return e->queue ? e->queue->link : link_at((uint32_t)__builtin_ctzll(e->o.links)); }

/* ---- birth and end */

cl_event event_new(cl_context context, cl_command_queue queue, cl_command_type command, uint64_t links) {
	cl_event e = object_new(sizeof *e, KIND_EVENT, links);
	if (!e)
		return NULL;
	e->context = context;
	object_hold(context);
	e->queue = queue;
	if (queue)
		object_hold(queue);
	e->command = command;
	atomic_init(&e->status, queue ? CL_QUEUED : CL_SUBMITTED);
	pthread_mutex_init(&e->lock, NULL);
	return e;
}

/* Nobody waits any more: each callback holds its event. */
void event_gone(cl_event e) {
	pthread_mutex_destroy(&e->lock);
	if (e->queue)
		object_drop(e->queue);
	object_drop(e->context);
}

cl_int ob_clRetainEvent(cl_event e) { return object_retain(e); }
cl_int ob_clReleaseEvent(cl_event e) { return object_release(e); }

/* ---- status */

int32_t event_status(cl_event e) {
	int32_t status = atomic_load(&e->status);
	if (status <= 0 || !e->queue)
		return status;
	if (e->serial != 0 && atomic_load(&e->queue->finished) >= e->serial)
		return CL_COMPLETE;
	return session_dead(e->queue->link->session) ? session_dead_status(e->queue->link->session) : status;
}

static void call_back(void *arg) {
	struct event_callback *c = arg;
	if (c->run)
		c->run(c->user_data, c->status);
	else
		c->notify(c->event, c->status, c->user_data);
	object_drop(c->event);
	free(c);
}

static void post(struct event_callback *c, int32_t status) {
	c->status = status < 0 ? status : c->type;
	(void)callback_post(home(c->event), call_back, c);
}

/* due takes the callbacks that a status sets off, in order. */
static struct event_callback *due(cl_event e, int32_t status) {
	struct event_callback **at = &e->callbacks, *first = e->callbacks;
	while (*at && (*at)->type >= status)
		at = &(*at)->next;
	struct event_callback *rest = *at;
	*at = NULL;
	e->callbacks = rest;
	return first == rest ? NULL : first;
}

/* set changes the status from one that is above floor. What is complete or has failed stays so, but for data that got lost. */
static void set(cl_event e, int32_t status, int32_t floor) {
	struct event_callback *calls = NULL;
	pthread_mutex_lock(&e->lock);
	int32_t old = atomic_load(&e->status);
	if (old > floor && status < old) {
		atomic_store(&e->status, status);
		calls = due(e, status);
	}
	pthread_mutex_unlock(&e->lock);
	for (struct event_callback *next; calls; calls = next) {
		next = calls->next;
		post(calls, status);
	}
}

void event_set_status(cl_event e, int32_t status) { set(e, status, 0); }

void event_fail(cl_event e, int32_t status) { set(e, status, -1); }

void event_times(cl_event e, struct link *link, const uint64_t *times) {
	pthread_mutex_lock(&e->lock);
	for (int i = 0; i < 5; i++)
		e->times[i] = times[i] + (uint64_t)atomic_load(&link->clock_offset);
	atomic_store(&e->timed, 1);
	pthread_mutex_unlock(&e->lock);
}

static void die(void *object, void *arg) {
	cl_event e = object;
	struct link *link = arg;
	if (e->queue && e->queue->link == link)
		event_set_status(e, event_status(e));
}

void events_died(struct link *link) { object_each(KIND_EVENT, die, link); }

void event_watch(cl_event e) {
	if (e->queue && atomic_exchange(&e->watched, 1) == 0)
		(void)send_watch(e->queue->link->session, NULL, e->o.id);
}

/* ---- queries */

/* polled asks for pushes at the first poll; each further one only reads what has come. */
static int32_t polled(cl_event e) {
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
		INFO(cl_int, polled(e));
	}
	return CL_INVALID_VALUE;
}

/* fetch asks the worker for times that have not come. Its watch comes first, so that they may still come by themselves. */
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

/* ---- waiting */

/* wait_at waits for those of the events that only that link can tell about. */
static cl_int wait_at(struct link *link, cl_uint count, const cl_event *list, uint64_t *ids) {
	uint64_t n = 0;
	for (cl_uint i = 0; i < count; i++)
		if (event_status(list[i]) > 0 && home(list[i]) == link)
			ids[n++] = list[i]->o.id;
	return n == 0 ? CL_SUCCESS : call_clWaitForEvents(link->session, ids, n);
}

/* learn notes what the end of a wait has told. */
static void learn(cl_event e, cl_int status) {
	if (!e->queue || event_status(e) < 0)
		return;
	if (status == CL_SUCCESS) {
		event_set_status(e, CL_COMPLETE);
		queue_reached(e->queue, e->serial);
	} else if (event_status(e) > 0) {
		event_watch(e); /* it may be one of those that failed */
	}
}

/* wait_all returns the worst that the links say; that of an event is in its status. */
static cl_int wait_all(cl_uint count, const cl_event *list) {
	uint64_t few[16], *ids = count <= 16 ? few : malloc(count * sizeof *ids), links = 0;
	struct link *link;
	cl_int status = CL_SUCCESS;
	if (!ids)
		return CL_OUT_OF_HOST_MEMORY;
	for (cl_uint i = 0; i < count; i++)
		links |= home(list[i])->bit;
	FOR_LINKS(link, links) {
		cl_int one = wait_at(link, count, list, ids);
		for (cl_uint i = 0; i < count; i++)
			if (home(list[i]) == link)
				learn(list[i], one);
		uint64_t clock;
		if (one != CL_SUCCESS && !session_dead(link->session))
			(void)call_clock(link->session, &clock); /* what failed has been told when it is back */
		status = one ? one : status;
	}
	if (ids != few)
		free(ids);
	return status;
}

int32_t event_wait(cl_event e) {
	int32_t status = event_status(e);
	if (status > 0) {
		int32_t waited = wait_all(1, &e);
		status = event_status(e);
		if (status > 0)
			status = waited;
	}
	return status;
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
	status = wait_all(num_events, event_list);
	for (cl_uint i = 0; i < num_events; i++) {
		if (event_status(event_list[i]) < 0 && status == CL_SUCCESS)
			status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
		int32_t sticky = event_list[i]->queue ? queue_take_sticky(event_list[i]->queue) : 0;
		status = status ? status : sticky;
	}
	return status;
}

/* ---- user events. They exist on every link of their context, and `watched` says that they have been set. */

cl_event ob_clCreateUserEvent(cl_context context, cl_int *errcode_ret) {
	cl_event e = event_new(context, NULL, CL_COMMAND_USER, context->o.links);
	cl_int status = e ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	struct link *link;
	if (e)
		FOR_LINKS(link, e->o.links) {
			session_shared(link->session); /* a worker that blocks for this thread would not hear of the event from another */
			cl_int one = send_clCreateUserEvent(link->session, NULL, context->o.id, e->o.id);
			status = one ? one : status;
		}
	if (answer_status(errcode_ret, status) == CL_SUCCESS)
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

/* ---- callbacks */

/* insert keeps them in the order in which they come due: by type downwards, then by registration. */
static void insert(cl_event e, struct event_callback *c) {
	struct event_callback **at = &e->callbacks;
	while (*at && (*at)->type >= c->type)
		at = &(*at)->next;
	c->next = *at;
	*at = c;
}

/* add returns 1 when the callback has been kept for later, 0 when it is due. */
static int add(cl_event e, struct event_callback *c, int32_t *status) {
	pthread_mutex_lock(&e->lock);
	*status = event_status(e);
	int later = *status > c->type;
	if (later)
		insert(e, c);
	pthread_mutex_unlock(&e->lock);
	return later;
}

cl_int ob_clSetEventCallback(cl_event e, cl_int type, PFN_clSetEventCallback notify, void *user_data) {
	if (!notify || type < CL_COMPLETE || type > CL_SUBMITTED)
		return CL_INVALID_VALUE;
	struct event_callback *c = calloc(1, sizeof *c);
	if (!c)
		return CL_OUT_OF_HOST_MEMORY;
	*c = (struct event_callback){.event = e, .type = type, .notify = notify, .user_data = user_data};
	object_hold(e);
	int32_t status;
	if (session_listen(home(e)->session) != 0) {
		object_drop(e);
		free(c);
		return CL_OUT_OF_RESOURCES;
	}
	if (add(e, c, &status))
		event_watch(e);
	else
		post(c, status);
	return CL_SUCCESS;
}

int32_t event_then(cl_event e, void (*run)(void *arg, int32_t status), void *arg) {
	struct event_callback *c = calloc(1, sizeof *c);
	int32_t status;
	if (!c)
		return CL_OUT_OF_HOST_MEMORY;
	*c = (struct event_callback){.event = e, .type = CL_COMPLETE, .run = run, .user_data = arg};
	object_hold(e);
	(void)session_listen(home(e)->session);
	if (add(e, c, &status)) {
		event_watch(e);
	} else {
		c->status = status;
		call_back(c);
	}
	return 0;
}
