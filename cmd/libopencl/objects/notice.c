/* notice.c: handlers of the worker's notices; they run as handlers of the session, and neither send
 * nor wait. Layer: objects. */
#include "library.h"
#include "record.h"

#include "kernel.h"
#include "memory.h"
#include "program.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static void snapshot(struct link *link, const struct notice *n) {
	struct notice_snapshot s;
	if (link->facts)
		return;
	if (decode_snapshot(n, &s) == 0) {
		link->memory_limit = s.memory_limit;
		link->facts = facts_new(s.facts, s.facts_size);
	}
	link->malformed = link->facts == NULL;
}

/* find_on finds an object by id, held, if it exists on the link: a worker may affect only the
 * objects of its own session. */
static void *find_on(const struct link *link, uint64_t id, uint32_t kind) {
	struct object *o = object_find(id, kind);
	if (o && !(o->links & link->bit)) {
		object_drop(o);
		o = NULL;
	}
	return o;
}

static cl_context context_of(struct object *o) {
	switch (o->kind) {
	case KIND_CONTEXT:
		return (cl_context)o;
	case KIND_QUEUE:
		return ((cl_command_queue)o)->context;
	case KIND_EVENT:
		return ((cl_event)o)->context;
	case KIND_MEM:
		return ((cl_mem)o)->context;
	case KIND_SAMPLER:
		return ((cl_sampler)o)->context;
	case KIND_PROGRAM:
		return ((cl_program)o)->context;
	case KIND_KERNEL:
		return ((cl_kernel)o)->program->context;
	}
	return NULL;
}

/* A command that fails may end before earlier commands of its queue. */
static int is_own_read(const struct track *t, uint64_t before, const void *event) { return (void)before, t->event == event; }

/* has_data returns 0 when the data of a read that has ended by this status has not arrived: the
 * session is dead then. A session that is being opened has no commands. */
static int has_data(const struct link *link, cl_event e, int32_t status) {
	uint64_t before = e->serial ? e->serial + 1 : UINT64_MAX;
	if (status > 0 || !link->session)
		return 1;
	return session_require_data(link->session, before, status == CL_COMPLETE ? event_implies_read : is_own_read, e) == 0;
}

static void set_failed(const struct link *link, struct object *o, int32_t status) {
	int32_t none = 0;
	switch (o->kind) {
	case KIND_EVENT:
		if (((cl_event)o)->queue && ((cl_event)o)->queue->link == link && has_data(link, (cl_event)o, status))
			event_set_status((cl_event)o, status);
		break;
	case KIND_QUEUE:
		atomic_compare_exchange_strong(&((cl_command_queue)o)->sticky, &none, status);
		break;
	default:
		break;
	}
}

/* record_failure marks the object as failed; returns 1 when its context has been notified. */
static int record_failure(const struct link *link, uint64_t id, int32_t status, int creation, const char *text, int notified) {
	struct object *o = id ? find_on(link, id, 0) : NULL;
	if (!o)
		return notified;
	int32_t none = 0;
	if (creation)
		atomic_compare_exchange_strong(&o->failed, &none, status);
	else
		set_failed(link, o, status);
	cl_context context = notified ? NULL : context_of(o);
	if (context)
		context_notify(context, text, NULL, 0);
	object_drop(o);
	return notified || context;
}

static void failed(const struct link *link, const struct notice *n) {
	struct notice_failed f;
	char text[160];
	if (decode_failed(n, &f) != 0 || f.status >= 0)
		return;
	snprintf(text, sizeof text, "%s failed: %s (%d)", name_of_op(f.op), name_of_status(f.status), f.status);
	int notified = record_failure(link, f.queue, f.status, 0, text, 0);
	notified = record_failure(link, f.event, f.status, 0, text, notified);
	record_failure(link, f.object, f.status, 1, text, notified);
}

static void event(struct link *link, const struct notice *n) {
	struct notice_event v;
	if (decode_event(n, &v) != 0)
		return;
	cl_event e = find_on(link, v.event, KIND_EVENT);
	if (!e)
		return;
	if (!e->queue || e->queue->link != link) { /* a user event, or the copy of another link's event */
		object_drop(e);
		return;
	}
	if (v.times && v.times_count == 5)
		event_times(e, link, v.times);
	if (has_data(link, e, v.status))
		event_set_status(e, v.status);
	object_drop(e);
}

static void write_all(int fd, const unsigned char *text, uint64_t size) {
	int saved = errno;
	while (size > 0) {
		ssize_t k = write(fd, text, size);
		if (k < 0 && errno == EAGAIN)
			poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 100);
		else if (k < 0 && errno != EINTR)
			break;
		else if (k > 0) {
			text += k;
			size -= (uint64_t)k;
		}
	}
	errno = saved;
}

/* output writes the text that kernels print to standard output, as a local driver does. */
static void output(const struct notice *n) {
	struct notice_output o;
	if (decode_output(n, &o) == 0)
		write_all(STDOUT_FILENO, o.text, o.text_size);
}

/* diagnostic writes a line of the driver's standard error to the program's, as a local driver does.
 * The line comes from another machine: control characters, which a terminal would interpret, are
 * replaced. */
static void diagnostic(const struct notice *n) {
	struct notice_diagnostic d;
	unsigned char line[2048];
	if (decode_diagnostic(n, &d) != 0 || d.text_size > sizeof line)
		return;
	for (uint64_t i = 0; i < d.text_size; i++) {
		unsigned char c = d.text[i];
		int continued = i > 0 && d.text[i - 1] == 0xc2; /* U+0080 to U+009F are controls, too */
		line[i] = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || (continued && c < 0xa0) ? '?' : c;
	}
	write_all(STDERR_FILENO, line, d.text_size);
}

static void context_error(const struct link *link, const struct notice *n) {
	struct notice_context_error e;
	if (decode_context_error(n, &e) != 0)
		return;
	cl_context c = find_on(link, e.context, KIND_CONTEXT);
	char *text = c ? strndup((const char *)e.text, e.text ? e.text_size : 0) : NULL;
	if (text)
		context_notify(c, text, e.private, e.private_size);
	free(text);
	if (c)
		object_drop(c);
}

static void recorded(struct link *link, const struct notice *n) {
	struct notice_recorded r;
	if (decode_recorded(n, &r) != 0)
		return;
	if (r.entries)
		record_worker(link->index, r.entries, r.entries_size);
	if (r.last)
		atomic_store(&link->recorded, 1);
}

void notice_receive(void *user, const struct notice *n) {
	switch (n->op) {
	case OP_snapshot:
		return snapshot(user, n);
	case OP_failed:
		return failed(user, n);
	case OP_event:
		return event(user, n);
	case OP_output:
		return output(n);
	case OP_context_error:
		return context_error(user, n);
	case OP_diagnostic:
		return diagnostic(n);
	case OP_recorded:
		return recorded(user, n);
	}
}

void notice_died(void *user) { events_died(user); }
