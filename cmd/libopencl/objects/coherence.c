/* coherence.c: which links hold the current contents of a memory object, in a context over several
 * links. Layer: objects.
 *
 * A command that uses an object on a link where it is stale first waits, on a link where it is
 * current, for the queues that wrote it, reads it there and writes it to its own link, on internal
 * queues. That wait is longer than the specification requires: a program whose writing command
 * depends on a user event that it sets after this enqueue deadlocks. With one link none of this
 * happens. */
#include "memory.h"

enum { PIECE = 64 << 20 }; /* bytes of a buffer moved at once */

/* Serialises copies between links. Neither callbacks nor reading threads acquire it. */
static pthread_mutex_t moving = PTHREAD_MUTEX_INITIALIZER;

/* An in-order queue of a context on a link, by ids. It is not visible to the program. */
struct internal {
	struct internal *next;
	struct link *link;
	uint64_t context, queue;
};
static struct internal *internals;
static pthread_mutex_t internals_lock = PTHREAD_MUTEX_INITIALIZER;

static int32_t usable(const struct command *c, cl_mem m) {
	if (m->context != c->queue->context)
		return CL_INVALID_CONTEXT;
	int32_t failed = atomic_load(&m->o.failed);
	if (failed == 0)
		failed = atomic_load(&m->root->o.failed);
	if (failed != 0)
		return failed;
	if (mem_misaligned(m, c->queue->device))
		return CL_MISALIGNED_SUB_BUFFER_OFFSET;
	return m->o.links & c->link->bit ? 0 : CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

static uint64_t internal_find(uint64_t context, const struct link *link) {
	for (struct internal *i = internals; i; i = i->next)
		if (i->context == context && i->link == link)
			return i->queue;
	return 0;
}

static cl_device_id device_on(cl_context context, const struct link *link) {
	for (cl_uint i = 0; i < context->device_count; i++)
		if (context->devices[i]->link == link)
			return context->devices[i];
	return NULL;
}

/* Called with `moving` held, so that no queue is created twice. */
static int32_t internal_queue(cl_context context, struct link *link, uint64_t *queue) {
	pthread_mutex_lock(&internals_lock);
	*queue = internal_find(context->o.id, link);
	pthread_mutex_unlock(&internals_lock);
	if (*queue)
		return 0;
	struct internal *i = malloc(sizeof *i);
	if (!i)
		return CL_OUT_OF_HOST_MEMORY;
	*i = (struct internal){.link = link, .context = context->o.id, .queue = new_ids(1)};
	int32_t status = send_clCreateCommandQueue(link->session, NULL, context->o.id, api_id(device_on(context, link)), 0, i->queue);
	if (status != 0) {
		free(i);
		return status;
	}
	*queue = i->queue;
	pthread_mutex_lock(&internals_lock);
	i->next = internals;
	internals = i;
	pthread_mutex_unlock(&internals_lock);
	return 0;
}

void coherence_forget(cl_context context) {
	struct internal *mine = NULL;
	pthread_mutex_lock(&internals_lock);
	for (struct internal **at = &internals, *i; (i = *at);) {
		if (i->context != context->o.id) {
			at = &i->next;
			continue;
		}
		*at = i->next;
		i->next = mine;
		mine = i;
	}
	pthread_mutex_unlock(&internals_lock);
	for (struct internal *i = mine, *next; i; i = next) {
		next = i->next;
		send_release(i->link->session, NULL, KIND_QUEUE, i->queue);
		free(i);
	}
}

static void writer_free(struct writer *w) {
	object_drop(w->queue);
	free(w);
}

void writers_drop(cl_mem root) {
	for (struct writer *w = root->writers, *next; w; w = next) {
		next = w->next;
		writer_free(w);
	}
	root->writers = NULL;
}

static int32_t writer_add(cl_mem root, cl_command_queue queue, struct link *link) {
	struct writer *fresh = calloc(1, sizeof *fresh), *w;
	if (!fresh)
		return CL_OUT_OF_HOST_MEMORY;
	pthread_mutex_lock(&root->lock);
	for (w = root->writers; w && w->queue != queue; w = w->next)
		;
	if (!w) {
		*fresh = (struct writer){.next = root->writers, .link = link, .queue = queue};
		object_hold(queue);
		root->writers = fresh;
	}
	pthread_mutex_unlock(&root->lock);
	if (w)
		free(fresh);
	return 0;
}

/* Removes the writers of one link from the list. */
static struct writer *writers_remove(cl_mem root, const struct link *link) {
	struct writer *taken = NULL;
	pthread_mutex_lock(&root->lock);
	for (struct writer **at = &root->writers, *w; (w = *at);) {
		if (w->link != link) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->next = taken;
		taken = w;
	}
	pthread_mutex_unlock(&root->lock);
	return taken;
}

static int32_t writers_finish(cl_mem root, const struct link *link) {
	int32_t status = 0;
	for (struct writer *w = writers_remove(root, link), *next; w; w = next) {
		next = w->next;
		if (status == 0)
			status = call_clFinish(link->session, api_id(w->queue));
		writer_free(w);
	}
	return status;
}

struct move {
	cl_mem root;
	struct link *from, *to;
	uint64_t from_queue, to_queue;
};

static int32_t move_read(const struct move *v, size_t offset, size_t size, const struct layout *at) {
	static const size_t zero[3];
	if (mem_is_image(v->root))
		return call_clEnqueueReadImage(v->from->session, v->from_queue, v->root->o.id, CL_TRUE, zero, 3, v->root->image.extent, 3, NULL, 0, 0, at);
	return call_clEnqueueReadBuffer(v->from->session, v->from_queue, v->root->o.id, CL_TRUE, offset, size, NULL, 0, 0, at);
}

/* A failure of the write is visible only in its event, since no other code uses its queue. */
static int32_t move_write(const struct move *v, size_t offset, size_t size, const struct layout *at) {
	static const size_t zero[3];
	struct session *s = v->to->session;
	uint64_t event = new_ids(1);
	int32_t status;
	if (mem_is_image(v->root))
		status = send_clEnqueueWriteImage(s, NULL, v->to_queue, v->root->o.id, CL_FALSE, zero, 3, v->root->image.extent, 3, NULL, 0, event, at);
	else
		status = send_clEnqueueWriteBuffer(s, NULL, v->to_queue, v->root->o.id, CL_FALSE, offset, size, NULL, 0, event, at);
	if (status == 0)
		status = call_clWaitForEvents(s, &event, 1);
	send_release(s, NULL, KIND_EVENT, event);
	return status;
}

static int32_t move_pieces(const struct move *v) {
	size_t all = v->root->storage, piece = mem_is_image(v->root) || all < PIECE ? all : PIECE;
	unsigned char *room = malloc(piece);
	int32_t status = room ? 0 : CL_OUT_OF_HOST_MEMORY;
	for (size_t at = 0; status == 0 && at < all; at += piece) {
		size_t n = all - at < piece ? all - at : piece;
		struct layout layout = layout_flat(room, n);
		status = move_read(v, at, n, &layout);
		if (status == 0)
			status = move_write(v, at, n, &layout);
	}
	free(room);
	return status;
}

/* Returns a live link where the contents are current; NULL: they are lost. */
static struct link *source_of(cl_mem root) {
	struct link *link;
	FOR_LINKS(link, atomic_load(&root->current))
		if (!session_dead(link->session))
			return link;
	return NULL;
}

static int32_t make_current_locked(struct link *to, cl_mem root) {
	struct move v = {.root = root, .to = to, .from = source_of(root)};
	if (atomic_load(&root->current) & to->bit)
		return 0; /* another thread has done it */
	if (!v.from)
		return CL_DEVICE_NOT_AVAILABLE;
	int32_t status = writers_finish(root, v.from);
	if (status == 0)
		status = internal_queue(root->context, v.from, &v.from_queue);
	if (status == 0)
		status = internal_queue(root->context, to, &v.to_queue);
	if (status == 0)
		status = move_pieces(&v);
	if (status == 0)
		atomic_fetch_or(&root->current, to->bit);
	return status;
}

static int32_t make_current(struct link *to, cl_mem root) {
	if (mem_is_pipe(root))
		return CL_INVALID_OPERATION; /* commands cannot read a pipe */
	pthread_mutex_lock(&moving);
	int32_t status = make_current_locked(to, root);
	pthread_mutex_unlock(&moving);
	return status;
}

int32_t command_reads(struct command *c, cl_mem m) {
	int32_t status = usable(c, m);
	if (status == 0 && !(atomic_load(&m->root->current) & c->link->bit))
		status = make_current(c->link, m->root);
	return status;
}

static int32_t mark_written(struct command *c, cl_mem root) {
	atomic_fetch_add(&root->version, 1);
	if (root->o.links == c->link->bit)
		return 0;
	int32_t status = writer_add(root, c->queue, c->link);
	if (status == 0)
		atomic_store(&root->current, c->link->bit);
	return status;
}

int32_t command_writes(struct command *c, cl_mem m) {
	int32_t status = command_reads(c, m);
	return status ? status : mark_written(c, m->root);
}

int32_t command_replaces(struct command *c, cl_mem m) {
	int32_t status = usable(c, m);
	return status ? status : mark_written(c, m->root);
}
