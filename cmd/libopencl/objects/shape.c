/* shape.c: the facts about a kernel on one link: its arguments' types and the limits of its
 * launches. Layer: objects. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "kernel.h"

enum { MAX_ARGS = 4096 }; /* of a kernel; parameters occupy at most a few KiB */

static const void *fact(const struct shape *s, uint16_t op, uint64_t device, cl_uint index, uint32_t param, size_t *size) {
	int32_t status = 0;
	*size = 0;
	const void *value = facts_find(s->outcome->facts, op, s->number, device, (uint16_t)index, param, &status, size);
	return status == 0 && *size ? value : NULL;
}

static uint64_t number_fact(const struct shape *s, uint16_t op, uint64_t device, cl_uint index, uint32_t param, uint64_t otherwise) {
	size_t size;
	const void *value = fact(s, op, device, index, param, &size);
	uint32_t small;
	uint64_t large;
	if (value && size == sizeof small)
		return memcpy(&small, value, sizeof small), small;
	if (value && size == sizeof large)
		return memcpy(&large, value, sizeof large), large;
	return otherwise;
}

/* Returns the type's name without qualifiers, which some drivers include. */
static const char *type_name(const struct shape *s, cl_uint i, size_t *n) {
	size_t size;
	const char *name = fact(s, OP_clGetKernelArgInfo, 0, i, CL_KERNEL_ARG_TYPE_NAME, &size);
	if (!name)
		return NULL;
	size = strnlen(name, size);
	const char *last = memrchr(name, ' ', size);
	*n = last && !memchr(name, '*', size) ? size - (size_t)(last + 1 - name) : size;
	return last && !memchr(name, '*', size) ? last + 1 : name;
}

static size_t scalar_size(const char *name, size_t n) {
	static const struct {
		const char *name;
		size_t size;
	} types[] = {{"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"half", 2}, {"int", 4}, {"uint", 4}, {"float", 4}, {"long", 8}, {"ulong", 8}, {"double", 8}};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (strlen(types[i].name) == n && memcmp(name, types[i].name, n) == 0)
			return types[i].size;
	return 0;
}

static size_t type_size(const char *name, size_t n, size_t *tight) {
	size_t letters = 0, width = 0;
	*tight = 0;
	while (letters < n && (name[letters] < '0' || name[letters] > '9'))
		letters++;
	size_t scalar = scalar_size(name, letters);
	if (letters == n || n - letters > 2)
		return letters == n ? scalar : 0;
	for (size_t i = letters; i < n; i++)
		width = width * 10 + (size_t)(name[i] - '0');
	if (width == 3)
		*tight = 3 * scalar;
	return width == 2 || width == 4 || width == 8 || width == 16 ? width * scalar : width == 3 ? 4 * scalar : 0;
}

static int begins(const char *text, size_t n, const char *what) { return n >= strlen(what) && memcmp(text, what, strlen(what)) == 0; }

static void private_arg(struct arg_shape *a, const char *name, size_t n) {
	if (begins(name, n, "sampler_t"))
		a->kind = ARG_SAMPLER;
	else if (begins(name, n, "queue_t"))
		a->kind = ARG_QUEUE;
	else
		a->kind = ARG_VALUE, a->size = type_size(name, n, &a->tight);
}

/* Fills *a from the driver's facts; leaves it unchanged without them. */
static void read_facts(const struct shape *s, cl_uint i, struct arg_shape *a) {
	size_t n = 0;
	const char *name = type_name(s, i, &n);
	uint64_t address = number_fact(s, OP_clGetKernelArgInfo, 0, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, 0);
	uint64_t access = number_fact(s, OP_clGetKernelArgInfo, 0, i, CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_ACCESS_NONE);
	uint64_t type = number_fact(s, OP_clGetKernelArgInfo, 0, i, CL_KERNEL_ARG_TYPE_QUALIFIER, 0);
	if (!address || !name)
		return;
	*a = (struct arg_shape){0};
	if (address == CL_KERNEL_ARG_ADDRESS_LOCAL)
		a->kind = ARG_LOCAL;
	else if (type & CL_KERNEL_ARG_TYPE_PIPE)
		a->kind = ARG_PIPE;
	else if (begins(name, n, "image"))
		a->kind = ARG_IMAGE, a->reads = access == CL_KERNEL_ARG_ACCESS_READ_ONLY;
	else if (address == CL_KERNEL_ARG_ADDRESS_PRIVATE || begins(name, n, "sampler_t") || begins(name, n, "queue_t"))
		private_arg(a, name, n); /* some drivers put samplers into constant memory */
	else
		a->kind = ARG_POINTER, a->reads = address == CL_KERNEL_ARG_ADDRESS_CONSTANT || (type & CL_KERNEL_ARG_TYPE_CONST);
}

static int make_args(struct shape *s) {
	uint64_t count = number_fact(s, OP_clGetKernelInfo, 0, 0, CL_KERNEL_NUM_ARGS, 0);
	if (count > MAX_ARGS)
		return -1;
	s->args = calloc(count + 1, sizeof *s->args);
	if (!s->args)
		return -1;
	s->arg_count = (cl_uint)count;
	for (cl_uint i = 0; i < s->arg_count; i++)
		read_facts(s, i, &s->args[i]);
	return 0;
}

int shape_knows(const struct shape *s) {
	for (cl_uint i = 0; i < s->arg_count; i++)
		if (s->args[i].kind == ARG_UNKNOWN)
			return 0;
	return 1;
}

/* Returns true when the name is in a list separated by semicolons; *place is its index. */
static int is_listed(const char *names, const char *name, uint64_t *place) {
	size_t n = strlen(name);
	for (*place = 0; *names; ++*place) {
		size_t size = strcspn(names, ";");
		if (n == size && n && memcmp(names, name, n) == 0)
			return 1;
		names += size + (names[size] == ';');
	}
	return 0;
}

static void shape_free(struct shape *s) {
	for (struct limits *l = atomic_load(&s->limits), *next; l; l = next) {
		next = l->next;
		free(l);
	}
	free(s->args);
	free(s->name);
	free(s);
}

static void shapes_free(struct shape *s) {
	for (struct shape *next; s; s = next) {
		next = s->next;
		shape_free(s);
	}
}

/* Kernels are numbered in the order of their names; the facts tell whether from 0 or from 1. */
static uint64_t find_number(struct shape *s, const char *name, uint64_t place) {
	for (s->number = place; s->number <= place + 1; s->number++) {
		size_t size;
		const char *value = fact(s, OP_clGetKernelInfo, 0, 0, CL_KERNEL_FUNCTION_NAME, &size);
		if (value && value[size - 1] == 0 && strcmp(value, name) == 0)
			return s->number;
	}
	return place;
}

static struct shape *shape_new(struct outcome *o, const char *name, uint64_t place) {
	struct shape *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->outcome = o;
	s->name = strdup(name);
	s->number = find_number(s, name, place);
	if (!s->name || make_args(s) != 0) {
		shape_free(s);
		return NULL;
	}
	return s;
}

struct shape *outcome_shape(struct outcome *o, cl_program p, const char *name, int32_t *status) {
	const char *names = outcome_kernels(o, p);
	uint64_t place;
	*status = names ? CL_INVALID_KERNEL_NAME : CL_INVALID_PROGRAM_EXECUTABLE;
	if (!names || !is_listed(names, name, &place))
		return NULL;
	pthread_mutex_lock(&o->lock);
	struct shape *s = o->shapes;
	while (s && strcmp(s->name, name) != 0)
		s = s->next;
	if (!s && (s = shape_new(o, name, place))) {
		s->next = o->shapes;
		o->shapes = s;
		o->free_shapes = shapes_free;
	}
	pthread_mutex_unlock(&o->lock);
	*status = s ? 0 : CL_OUT_OF_HOST_MEMORY;
	return s;
}

static void device_sizes(cl_device_id device, size_t items[3]) {
	int32_t status = 0;
	size_t size = 0;
	const void *value = facts_find(device->facts, OP_clGetDeviceInfo, device->o.id, 0, 0, CL_DEVICE_MAX_WORK_ITEM_SIZES, &status, &size);
	for (int i = 0; i < 3; i++)
		items[i] = SIZE_MAX;
	if (value && status == 0)
		memcpy(items, value, size < 3 * sizeof *items ? size : 3 * sizeof *items);
}

/* Returns true when the last work-group may be smaller: that depends on the language versions of
 * device and program. */
static int may_be_uneven(const struct outcome *o, cl_program p, cl_device_id device) {
	int version = device_version(device);
	if (version < 20 || (version >= 30 && !device_bool(device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT)))
		return 0;
	if (options_have(o->text->options, "-cl-uniform-work-group-size", NULL))
		return 0;
	const char *language;
	if (p->origin != FROM_SOURCE || !options_have(o->text->options, "-cl-std=", &language))
		return p->origin != FROM_SOURCE; /* without the option a source is OpenCL C 1.2; of other origins only the driver knows */
	return strncmp(language, "CL1", 3) != 0;
}

static struct limits *limits_new(const struct shape *s, cl_program p, cl_device_id device) {
	struct limits *l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	l->device = device;
	l->built = outcome_status(s->outcome, p, device) == CL_BUILD_SUCCESS;
	l->uneven = may_be_uneven(s->outcome, p, device);
	l->empty = device_version(device) >= 21;
	l->dimensions = (cl_uint)device_number(device, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS);
	if (l->dimensions == 0 || l->dimensions > 3)
		l->dimensions = 3;
	l->group = number_fact(s, OP_clGetKernelWorkGroupInfo, device->o.id, 0, CL_KERNEL_WORK_GROUP_SIZE, device_number(device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
	device_sizes(device, l->items);
	l->most = device_number(device, CL_DEVICE_ADDRESS_BITS) == 32 ? UINT32_MAX : UINT64_MAX;
	size_t size;
	const void *fixed = fact(s, OP_clGetKernelWorkGroupInfo, device->o.id, 0, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, &size);
	if (fixed && size == sizeof l->fixed)
		memcpy(l->fixed, fixed, size);
	return l;
}

static const struct limits *known_limits(struct shape *s, cl_device_id device) {
	struct limits *l = atomic_load_explicit(&s->limits, memory_order_acquire);
	while (l && l->device != device)
		l = l->next;
	return l;
}

const struct limits *shape_limits(struct shape *s, cl_program p, cl_device_id device) {
	const struct limits *known = known_limits(s, device);
	if (known)
		return known;
	pthread_mutex_lock(&s->outcome->lock);
	known = known_limits(s, device);
	struct limits *l = known ? NULL : limits_new(s, p, device);
	if (l) {
		l->next = atomic_load(&s->limits);
		atomic_store_explicit(&s->limits, l, memory_order_release);
	}
	pthread_mutex_unlock(&s->outcome->lock);
	return known ? known : l;
}
