/* facts.c: query answers that the worker sends in advance, sorted, so that a query is a search in
 * memory. Layer: objects. */
#include "library.h"

struct fact {
	uint16_t op, index;
	uint32_t param;
	uint64_t object, device;
	int32_t status;
	uint32_t size;
};
_Static_assert(sizeof(struct fact) == 32, "the head's layout is the wire's");

struct entry {
	struct fact head;
	const unsigned char *value;
	unsigned char *own; /* the value, when it has been replaced */
};

struct facts {
	_Atomic uint32_t held;
	size_t count;
	unsigned char *data;
	struct entry *entries;
};

/* step decodes the fact at *at and advances past it. Returns 0 when the fact is incomplete. */
static int step(const unsigned char *data, size_t size, size_t *at, struct entry *e) {
	if (size - *at < sizeof e->head)
		return 0;
	memcpy(&e->head, data + *at, sizeof e->head);
	*at += sizeof e->head;
	size_t padded = wire_padded(e->head.size);
	if (padded > size - *at)
		return 0;
	e->value = data + *at;
	e->own = NULL;
	*at += padded;
	return 1;
}

/* count returns the number of facts, or -1 for malformed data. */
static long count(const unsigned char *data, size_t size) {
	long n = 0;
	struct entry e;
	for (size_t at = 0; at < size; n++)
		if (!step(data, size, &at, &e))
			return -1;
	return n;
}

static int compare(const void *a, const void *b) {
	const struct fact *x = a, *y = b; /* an entry begins with its head */
#define BY(field) \
	if (x->field != y->field) \
		return x->field < y->field ? -1 : 1
	BY(object);
	BY(op);
	BY(param);
	BY(device);
	BY(index);
#undef BY
	return 0;
}

int fact_complete(uint16_t op, uint32_t param, struct blob *b) {
	int text;
	size_t size = fact_form(op, param, &text);
	if (text)
		size = b->size && b->data[b->size - 1] == 0 ? b->size : b->size + 1;
	if (size <= b->size)
		return 1;
	unsigned char *data = realloc(b->data, size);
	if (!data)
		return 0;
	memset(data + b->size, 0, size - b->size);
	*b = (struct blob){data, size};
	return 1;
}

/* complete applies fact_complete to a fact. */
static int complete(struct entry *e) {
	int text;
	size_t size = fact_form(e->head.op, e->head.param, &text);
	int whole = text ? e->head.size && e->value[e->head.size - 1] == 0 : e->head.size >= size;
	if (e->head.status != 0 || whole || e->head.size == UINT32_MAX)
		return 1;
	struct blob b;
	if (!blob_copy(&b, e->value, e->head.size) || !fact_complete(e->head.op, e->head.param, &b)) {
		free(b.data);
		return 0;
	}
	e->value = e->own = b.data;
	e->head.size = (uint32_t)b.size;
	return 1;
}

static int fill(struct facts *f, const unsigned char *data, size_t size) {
	f->data = malloc(size + 1);
	f->entries = calloc(f->count + 1, sizeof *f->entries);
	if (!f->data || !f->entries)
		return 0;
	if (size)
		memcpy(f->data, data, size);
	size_t at = 0;
	for (size_t i = 0; i < f->count; i++)
		if (!step(f->data, size, &at, &f->entries[i]) || !complete(&f->entries[i]))
			return 0;
	qsort(f->entries, f->count, sizeof *f->entries, compare);
	return 1;
}

struct facts *facts_new(const unsigned char *data, size_t size) {
	long n = count(data, size);
	struct facts *f = n < 0 ? NULL : calloc(1, sizeof *f);
	if (!f)
		return NULL;
	atomic_init(&f->held, 1);
	f->count = (size_t)n;
	if (!fill(f, data, size)) {
		facts_drop(f);
		return NULL;
	}
	return f;
}

struct facts *facts_hold(struct facts *f) {
	if (f)
		atomic_fetch_add(&f->held, 1);
	return f;
}

void facts_drop(struct facts *f) {
	if (!f || atomic_fetch_sub(&f->held, 1) != 1)
		return;
	for (size_t i = 0; f->entries && i < f->count; i++)
		free(f->entries[i].own);
	free(f->entries);
	free(f->data);
	free(f);
}

static struct entry *find(const struct facts *f, const struct fact *key) {
	return f ? bsearch(key, f->entries, f->count, sizeof *f->entries, compare) : NULL;
}

const void *facts_find(const struct facts *f, uint16_t op, uint64_t object, uint64_t device, uint16_t index, uint32_t param, int32_t *status, size_t *size) {
	struct fact key = {.op = op, .index = index, .param = param, .object = object, .device = device};
	struct entry *e = find(f, &key);
	if (!e)
		return NULL;
	*status = e->head.status;
	*size = e->head.size;
	return e->value;
}

/* facts_replace changes the value of an existing fact, before the facts are shared between
 * threads. */
void facts_replace(struct facts *f, uint16_t op, uint64_t object, uint32_t param, const void *value, size_t size) {
	struct fact key = {.op = op, .param = param, .object = object};
	struct entry *e = find(f, &key);
	unsigned char *own = e ? malloc(size + 1) : NULL;
	if (!own)
		return;
	memcpy(own, value, size);
	free(e->own);
	e->value = e->own = own;
	e->head.size = (uint32_t)size;
	e->head.status = 0;
}
