/* event.c: events: the known part of their status, and the callbacks that wait for it.
 * Layer: objects.
 *
 * A status is learnt from a notice, from a reply that implies it, or from the program itself. */
#include "library.h"

struct event_callback {
	struct event_callback *next;
	cl_event event; /* held */
	cl_int type;    /* CL_SUBMITTED, CL_RUNNING or CL_COMPLETE */
	cl_int status;  /* the argument of the call */
	PFN_clSetEventCallback notify;
	void *user_data;
	void (*run)(void *, int32_t); /* the library's own callback, in place of notify */
};

struct link *event_link(cl_event e) { return e->queue ? e->queue->link : link_at((uint32_t)__builtin_ctzll(e->o.links)); }

/* No callback is left: each holds its event. */
static void event_destroy(void *object) {
	cl_event e = object;
	pthread_mutex_destroy(&e->lock);
	if (e->queue)
		object_drop(e->queue);
	object_drop(e->context);
}

cl_event event_new(cl_context context, cl_command_queue queue, cl_command_type command, uint64_t links) {
	cl_event e = object_new(sizeof *e, KIND_EVENT, links, event_destroy);
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

int32_t event_status(cl_event e) {
	int32_t status = atomic_load(&e->status);
	if (status <= 0 || !e->queue)
		return status;
	if (e->serial != 0 && atomic_load(&e->queue->finished) >= e->serial)
		return CL_COMPLETE;
	return session_dead(e->queue->link->session) ? session_dead_status(e->queue->link->session) : status;
}

/* ---- callbacks */

static void invoke(void *arg) {
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
	(void)callback_post(event_link(c->event), invoke, c);
}

/* remove_due removes the callbacks that a status makes due, and returns them in order. */
static struct event_callback *remove_due(cl_event e, int32_t status) {
	struct event_callback **at = &e->callbacks, *first = e->callbacks;
	while (*at && (*at)->type >= status)
		at = &(*at)->next;
	struct event_callback *rest = *at;
	*at = NULL;
	e->callbacks = rest;
	return first == rest ? NULL : first;
}

/* insert keeps the list in the order in which callbacks become due: by descending type, then by
 * registration. */
static void insert(cl_event e, struct event_callback *c) {
	struct event_callback **at = &e->callbacks;
	while (*at && (*at)->type >= c->type)
		at = &(*at)->next;
	c->next = *at;
	*at = c;
}

/* add returns 1 when the callback was registered, 0 when it is due already. */
static int add(cl_event e, struct event_callback *c, int32_t *status) {
	pthread_mutex_lock(&e->lock);
	*status = event_status(e);
	int later = *status > c->type;
	if (later)
		insert(e, c);
	pthread_mutex_unlock(&e->lock);
	return later;
}

int32_t event_add_callback(cl_event e, cl_int type, PFN_clSetEventCallback notify, void *user_data) {
	struct event_callback *c = calloc(1, sizeof *c);
	int32_t status;
	if (!c)
		return CL_OUT_OF_HOST_MEMORY;
	*c = (struct event_callback){.event = e, .type = type, .notify = notify, .user_data = user_data};
	if (session_listen(event_link(e)->session) != 0) {
		free(c);
		return CL_OUT_OF_RESOURCES;
	}
	object_hold(e);
	if (add(e, c, &status))
		event_watch(e);
	else
		post(c, status);
	return 0;
}

int32_t event_on_complete(cl_event e, void (*run)(void *arg, int32_t status), void *arg) {
	struct event_callback *c = calloc(1, sizeof *c);
	int32_t status;
	if (!c)
		return CL_OUT_OF_HOST_MEMORY;
	*c = (struct event_callback){.event = e, .type = CL_COMPLETE, .run = run, .user_data = arg};
	object_hold(e);
	(void)session_listen(event_link(e)->session);
	if (add(e, c, &status)) {
		event_watch(e);
	} else {
		c->status = status;
		invoke(c);
	}
	return 0;
}

/* ---- changes of the status */

/* set changes a status that is above floor to a lower one, and posts the callbacks that become
 * due. */
static void set(cl_event e, int32_t status, int32_t floor) {
	struct event_callback *calls = NULL;
	pthread_mutex_lock(&e->lock);
	int32_t old = atomic_load(&e->status);
	if (old > floor && status < old) {
		atomic_store(&e->status, status);
		calls = remove_due(e, status);
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

static void fail_if_on(void *object, void *arg) {
	cl_event e = object;
	struct link *link = arg;
	if (e->queue && e->queue->link == link)
		event_set_status(e, event_status(e));
}

void events_died(struct link *link) { object_each(KIND_EVENT, fail_if_on, link); }

void event_watch(cl_event e) {
	if (e->queue && atomic_exchange(&e->watched, 1) == 0)
		(void)send_watch(e->queue->link->session, NULL, e->o.id);
}

/* ---- waiting */

struct event_list {
	cl_uint count;
	const cl_event *all;
};

static int list_implies_read(const struct track *t, uint64_t before, const void *arg) {
	const struct event_list *list = arg;
	for (cl_uint i = 0; i < list->count; i++)
		if (event_implies_read(t, before, list->all[i]))
			return 1;
	return 0;
}

/* wait_on_link waits for the pending events whose status only that link's worker knows. */
static cl_int wait_on_link(struct link *link, cl_uint count, const cl_event *list, uint64_t *ids) {
	uint64_t n = 0;
	for (cl_uint i = 0; i < count; i++)
		if (event_status(list[i]) > 0 && event_link(list[i]) == link)
			ids[n++] = list[i]->o.id;
	if (n == 0)
		return CL_SUCCESS;
	struct event_list all = {count, list};
	session_expect_data(list_implies_read, &all);
	cl_int status = call_clWaitForEvents(link->session, ids, n);
	session_expect_data(NULL, NULL);
	return status;
}

/* record_wait records what the result of a wait implies for an event. */
static void record_wait(cl_event e, cl_int status) {
	if (!e->queue || event_status(e) < 0)
		return;
	if (status == CL_SUCCESS) {
		event_set_status(e, CL_COMPLETE);
		queue_reached(e->queue, e->serial);
	} else if (event_status(e) > 0) {
		event_watch(e); /* it may be one of the failed events */
	}
}

int32_t event_wait_all(cl_uint count, const cl_event *list) {
	uint64_t few[16], *ids = count <= 16 ? few : malloc(count * sizeof *ids), links = 0;
	struct link *link;
	cl_int status = CL_SUCCESS;
	if (!ids)
		return CL_OUT_OF_HOST_MEMORY;
	for (cl_uint i = 0; i < count; i++)
		links |= event_link(list[i])->bit;
	FOR_LINKS(link, links) {
		cl_int one = wait_on_link(link, count, list, ids);
		for (cl_uint i = 0; i < count; i++)
			if (event_link(list[i]) == link)
				record_wait(list[i], one);
		uint64_t clock;
		if (one != CL_SUCCESS && !session_dead(link->session))
			(void)call_clock(link->session, &clock); /* the notices of the failures precede its reply */
		status = one ? one : status;
	}
	if (ids != few)
		free(ids);
	return status;
}

int32_t event_wait(cl_event e) {
	int32_t status = event_status(e);
	if (status > 0) {
		int32_t waited = event_wait_all(1, &e);
		status = event_status(e);
		if (status > 0)
			status = waited;
	}
	return status;
}
