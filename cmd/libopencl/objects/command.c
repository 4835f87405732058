/* command.c: the beginning and end of every command: wait list, event, status. Layer: objects. */
#include "library.h"

enum { ROOM = sizeof((struct command *)0)->room / sizeof(uint64_t) };

/* ---- events of other links. The command's worker gets a user event with the same id, which is set when the event's own worker
 * has reported its status. */

struct bridge {
	struct link *link;
	cl_event event; /* held */
};

static void forward_status(void *arg, int32_t status) {
	struct bridge *b = arg;
	(void)send_clSetUserEventStatus(b->link->session, NULL, b->event->o.id, status);
	object_drop(b->event);
	free(b);
}

/* create_on_link creates the user event, once. Returns 1 when it is new. */
static int create_on_link(cl_event e, struct link *link, int32_t *status) {
	pthread_mutex_lock(&e->lock);
	int new = !(e->o.links & link->bit);
	*status = new ? send_clCreateUserEvent(link->session, NULL, e->context->o.id, e->o.id) : 0;
	if (new && *status == 0)
		e->o.links |= link->bit;
	pthread_mutex_unlock(&e->lock);
	return new && *status == 0;
}

static int32_t bridge(cl_event e, struct link *link) {
	int32_t status;
	if (!create_on_link(e, link, &status))
		return status;
	struct bridge *b = malloc(sizeof *b);
	if (!b)
		return CL_OUT_OF_HOST_MEMORY;
	*b = (struct bridge){link, e};
	object_hold(e);
	return event_on_complete(e, forward_status, b);
}

int32_t command_check_waits(cl_context context, cl_uint count, const cl_event *list) {
	if ((count == 0) != (list == NULL))
		return CL_INVALID_EVENT_WAIT_LIST;
	for (cl_uint i = 0; i < count; i++)
		if (!api_valid(list[i], KIND_EVENT))
			return CL_INVALID_EVENT_WAIT_LIST;
	for (cl_uint i = 0; i < count; i++)
		if (list[i]->context != context)
			return CL_INVALID_CONTEXT;
	return 0;
}

/* collect_waits collects the ids of a wait list, without complete events. */
static int32_t collect_waits(struct command *c, cl_uint count, const cl_event *list) {
	uint64_t *ids = count <= ROOM ? c->room : (c->heap = malloc(count * sizeof *ids));
	int32_t status = ids ? 0 : CL_OUT_OF_HOST_MEMORY;
	for (cl_uint i = 0; status == 0 && i < count; i++) {
		if (event_status(list[i]) == CL_COMPLETE)
			continue;
		status = bridge(list[i], c->link);
		ids[c->wait_count++] = list[i]->o.id;
	}
	c->waits = c->wait_count ? ids : NULL;
	return status;
}

int32_t command_begin(struct command *c, cl_command_queue q, cl_command_type type, cl_uint count, const cl_event *list, cl_event *out) {
	int32_t status = atomic_load(&q->o.failed);
	if (status == 0)
		status = command_check_waits(q->context, count, list);
	if (status != 0)
		return status;
	c->session = q->link->session;
	c->link = q->link;
	c->queue = q;
	c->waits = NULL;
	c->wait_count = c->event = 0;
	c->heap = NULL;
	c->created = NULL;
	c->out = out;
	c->type = type;
	c->count = count;
	c->list = list;
	if (count && (status = collect_waits(c, count, list)) != 0) {
		free(c->heap);
		return status;
	}
	if (out && !(c->created = event_new(q->context, q, type, q->link->bit))) {
		free(c->heap);
		return CL_OUT_OF_HOST_MEMORY;
	}
	c->event = api_id(c->created);
	command_enter(c);
	c->before = session_serial(c->session);
	return 0;
}

static void raise_to(_Atomic uint64_t *word, uint64_t value) {
	uint64_t old = atomic_load(word);
	while (old < value && !atomic_compare_exchange_weak(word, &old, value))
		;
}

/* The last message that this thread sent is the command, if the command was sent. */
int32_t command_end(struct command *c, int32_t status) {
	uint64_t serial = session_serial(c->session);
	free(c->heap);
	if (serial != c->before) {
		raise_to(&c->queue->sent, serial);
		command_entered(c, serial);
	}
	if (!c->created)
		return status;
	c->created->serial = serial;
	if (status == 0) {
		*c->out = c->created;
	} else {
		if (serial == c->before)
			c->created->o.links = 0; /* the worker does not have it */
		object_drop(c->created);
	}
	return status;
}
