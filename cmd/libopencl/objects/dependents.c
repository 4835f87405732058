/* dependents.c: the commands whose completion implies the end of a read, since they waited for it.
 * Layer: objects.
 *
 * A read that has not ended has a list of them. A command is entered by the id of its event before
 * it is sent, so that its completion finds the entry, and by its place in its queue once its serial
 * is known. */
#include "library.h"

struct dependent {
	uint64_t event; /* the id of the command's event, or 0 when its place is known */
	uint64_t queue; /* its id */
	uint64_t serial;
	int ordered; /* later commands of the queue begin after it */
};

struct dependents {
	size_t count, room;
	struct dependent all[];
};

static const struct dependent *first(const struct track *t) {
	const struct dependents *d = t->dependents;
	return d ? d->all : NULL;
}

static size_t count_of(const struct track *t) {
	const struct dependents *d = t->dependents;
	return d ? d->count : 0;
}

/* is_due is whether the completion of the event, or of commands before it, implies that of d. */
static int is_due(const struct dependent *d, const struct _cl_event *e) {
	if (d->event)
		return d->event == e->o.id;
	return d->queue == e->queue->o.id && (d->serial == e->serial || (d->ordered && d->serial < e->serial));
}

int event_implies_read(const struct track *t, uint64_t before, const void *event) {
	const struct _cl_event *e = event;
	(void)before;
	if (t->event == e)
		return 1;
	if (!e->queue || atomic_load(&e->status) < 0)
		return 0;
	if (t->queue == e->queue && t->serial < e->serial && queue_in_order(e->queue))
		return 1;
	for (size_t i = 0; i < count_of(t); i++)
		if (is_due(&first(t)[i], e))
			return 1;
	return 0;
}

/* has_before is whether a command of the queue that was sent before a serial, and that is ordered if
 * need be, waited for the read. */
static int has_before(const struct track *t, uint64_t before, uint64_t queue, int ordered) {
	for (size_t i = 0; i < count_of(t); i++) {
		const struct dependent *d = &first(t)[i];
		if (!d->event && d->queue == queue && d->serial < before && (d->ordered || !ordered))
			return 1;
	}
	return 0;
}

int queue_has_read(const struct track *t, uint64_t before, const void *queue) {
	const struct _cl_command_queue *q = queue;
	return t->queue == q || has_before(t, before, q->o.id, 0);
}

/* waits_for is whether the command, with a serial below `before`, begins after the end of the read
 * because of what it was told to wait for. */
static int waits_for(const struct track *t, uint64_t before, const struct command *c) {
	if (c->after_all && ((t->queue == c->queue && t->serial < before) || has_before(t, before, c->queue->o.id, 0)))
		return 1;
	for (cl_uint i = 0; i < c->count; i++)
		if (event_implies_read(t, before, c->list[i]))
			return 1;
	return 0;
}

int command_implies_read(const struct track *t, uint64_t before, const void *command) {
	const struct command *c = command;
	if (queue_in_order(c->queue) ? queue_has_read(t, before, c->queue) : has_before(t, before, c->queue->o.id, 1))
		return 1;
	return waits_for(t, before, c);
}

/* append adds an entry. Without memory for it the read is not protected from this command. */
static void append(struct track *t, struct dependent d) {
	struct dependents *all = t->dependents;
	if (!all || all->count == all->room) {
		size_t room = all ? 2 * all->room : 4;
		struct dependents *more = realloc(all, sizeof *more + room * sizeof *more->all);
		if (!more)
			return;
		if (!all)
			more->count = 0;
		more->room = room;
		t->dependents = all = more;
	}
	all->all[all->count++] = d;
}

static void remove_event(struct track *t, uint64_t event) {
	struct dependents *all = t->dependents;
	for (size_t i = 0; event && i < count_of(t); i++)
		if (all->all[i].event == event) {
			all->all[i] = all->all[--all->count];
			return;
		}
}

static void enter_event(struct track *t, void *command) {
	const struct command *c = command;
	if (waits_for(t, UINT64_MAX, c))
		append(t, (struct dependent){.event = c->event});
}

/* A command that has been sent. */
struct sent {
	const struct command *command;
	uint64_t serial;
};

static void enter_place(struct track *t, void *arg) {
	const struct sent *s = arg;
	const struct command *c = s->command;
	if (!waits_for(t, s->serial, c))
		return;
	remove_event(t, c->event);
	int ordered = queue_in_order(c->queue) || c->type == CL_COMMAND_BARRIER;
	if (!ordered || !has_before(t, s->serial, c->queue->o.id, 1)) /* else an earlier entry implies it */
		append(t, (struct dependent){.queue = c->queue->o.id, .serial = s->serial, .ordered = ordered});
}

void command_enter(struct command *c) {
	c->after_all = c->count == 0 && !queue_in_order(c->queue) && (c->type == CL_COMMAND_MARKER || c->type == CL_COMMAND_BARRIER);
	if (c->event && (c->count || c->after_all))
		session_each_track(c->session, enter_event, c);
}

void command_entered(struct command *c, uint64_t serial) {
	struct sent s = {c, serial};
	if (c->count || c->after_all)
		session_each_track(c->session, enter_place, &s);
}
