/* object.c: the lifetime of all objects: ids, reference counts, and the table that maps ids to
 * objects. Layer: objects. */
#include "library.h"

enum { MAGIC = 0x6f626a31, FIRST_BUCKETS = 1024 };

static struct {
	pthread_mutex_t lock;
	struct object **buckets;
	size_t size, count; /* size is a power of two */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic uint64_t last_id = ID_FIRST - 1;

const struct _cl_icd_dispatch *object_dispatch;

_Atomic(struct object *) object_reap_list;

uint64_t new_ids(uint64_t count) { return atomic_fetch_add(&last_id, count) + 1; }

int api_valid(const void *handle, uint32_t kind) {
	const struct object *o = handle;
	return o && ((uintptr_t)o & 7) == 0 && o->magic == MAGIC && o->kind == kind;
}

/* ---- the table. Ids are consecutive, so their low bits distribute evenly. */

static struct object **bucket(uint64_t id) { return &table.buckets[id & (table.size - 1)]; }

static int grow(void) {
	size_t size = table.size ? table.size * 2 : FIRST_BUCKETS;
	struct object **old = table.buckets, **all = calloc(size, sizeof *all);
	if (!all)
		return table.size != 0; /* an overfull table is only slow */
	size_t old_size = table.size;
	table.buckets = all;
	table.size = size;
	for (size_t i = 0; i < old_size; i++)
		for (struct object *o = old[i], *next; o; o = next) {
			next = o->next;
			o->next = *bucket(o->id);
			*bucket(o->id) = o;
		}
	free(old);
	return 1;
}

static int table_add(struct object *o) {
	pthread_mutex_lock(&table.lock);
	int ok = table.count < table.size * 2 || grow();
	if (ok) {
		o->next = *bucket(o->id);
		*bucket(o->id) = o;
		table.count++;
	}
	o->in_table = ok;
	pthread_mutex_unlock(&table.lock);
	return ok;
}

static void table_remove(struct object *o) {
	if (!o->in_table)
		return;
	pthread_mutex_lock(&table.lock);
	struct object **at = bucket(o->id);
	while (*at && *at != o)
		at = &(*at)->next;
	if (*at) {
		*at = o->next;
		table.count--;
	}
	o->in_table = 0;
	pthread_mutex_unlock(&table.lock);
}

/* hold_if_alive adds a hold unless the last one has been dropped. */
static int hold_if_alive(struct object *o) {
	uint32_t n = atomic_load(&o->held);
	while (n != 0 && !atomic_compare_exchange_weak(&o->held, &n, n + 1))
		;
	return n != 0;
}

void *object_find(uint64_t id, uint32_t kind) {
	pthread_mutex_lock(&table.lock);
	struct object *o = table.size ? *bucket(id) : NULL;
	while (o && (o->id != id || (kind && o->kind != kind)))
		o = o->next;
	if (o && !hold_if_alive(o))
		o = NULL;
	pthread_mutex_unlock(&table.lock);
	return o;
}

/* collect returns the live objects of a kind, held, and their number. */
static struct object **collect(uint32_t kind, size_t *count) {
	*count = 0;
	pthread_mutex_lock(&table.lock);
	struct object **all = malloc((table.count + 1) * sizeof *all);
	for (size_t i = 0; all && i < table.size; i++)
		for (struct object *o = table.buckets[i]; o; o = o->next)
			if (o->kind == kind && hold_if_alive(o))
				all[(*count)++] = o;
	pthread_mutex_unlock(&table.lock);
	return all;
}

void object_each(uint32_t kind, void (*visit)(void *object, void *arg), void *arg) {
	size_t count;
	struct object **all = collect(kind, &count);
	for (size_t i = 0; i < count; i++) {
		visit(all[i], arg);
		object_drop(all[i]);
	}
	free(all);
}

/* ---- creation */

void *object_new_with_id(size_t size, uint32_t kind, uint64_t links, uint64_t id, void (*destroy)(void *)) {
	struct object *o = calloc(1, size);
	if (!o)
		return NULL;
	o->dispatch = object_dispatch;
	o->destroy = destroy;
	o->magic = MAGIC;
	o->kind = kind;
	o->id = id;
	o->links = links;
	atomic_init(&o->refs, 1);
	atomic_init(&o->held, 1);
	return o;
}

void *object_new(size_t size, uint32_t kind, uint64_t links, void (*destroy)(void *)) {
	struct object *o = object_new_with_id(size, kind, links, new_ids(1), destroy);
	if (o && !table_add(o)) {
		free(o);
		return NULL;
	}
	return o;
}

/* ---- destruction */

static void destroy(struct object *o) {
	struct link *link;
	o->magic = 0;
	FOR_LINKS(link, o->links)
		(void)send_release(link->session, NULL, o->kind, o->id); /* a dead worker has no objects */
	if (o->destroy)
		o->destroy(o);
	free(o);
}

static void defer_destroy(struct object *o) {
	struct object *next = atomic_load(&object_reap_list);
	do
		o->next = next;
	while (!atomic_compare_exchange_weak(&object_reap_list, &next, o));
}

void object_reap(void) {
	struct object *o = atomic_exchange(&object_reap_list, NULL);
	for (struct object *next; o; o = next) {
		next = o->next;
		destroy(o);
	}
}

void object_hold(void *object) { atomic_fetch_add(&((struct object *)object)->held, 1); }

void object_drop(void *object) {
	struct object *o = object;
	if (atomic_fetch_sub(&o->held, 1) != 1)
		return;
	table_remove(o);
	if (session_dispatching())
		defer_destroy(o);
	else
		destroy(o);
}

int32_t object_retain(void *object) {
	atomic_fetch_add(&((struct object *)object)->refs, 1);
	return CL_SUCCESS;
}

int32_t object_release(void *object) {
	if (atomic_fetch_sub(&((struct object *)object)->refs, 1) == 1)
		object_drop(object);
	return CL_SUCCESS;
}
