/* contents.c: in a layer, the memory objects whose contents a leased device's library would hold in
 * the program's mapped memory: a map of them reads nothing. Layer: entry.
 *
 * The rules are the library's (calls/map.c, calls/launch.c, objects/memory.h). A root's contents are
 * current after its creation without contents, a blocking map of all of it, or an unmap that writes
 * all of it; they are stale once a command writes the object. Objects, kernels and maps beyond
 * MAX_ENTRIES are not tracked: their contents count as stale. */
#include "contents.h"
#include "entry.h"
#include "signature.h"

#include <stdlib.h>

enum { BUCKETS = 1024, MAX_ENTRIES = 1 << 16, MAX_ARGUMENTS = 256 };

/* An entry is reused when its address is, and never freed: parts point to their roots. */
struct contents {
	struct contents *next, *root;
	cl_mem object;
	uint64_t number, whole; /* number: of all objects so far; addresses are reused */
	int read_only, current;
	int mapped; /* of a root: it or a part was mapped */
};

enum { ACCESS_UNKNOWN, ACCESS_READS, ACCESS_WRITES };

struct argument {
	cl_mem object;
	int access;
};

struct kernel {
	struct kernel *next;
	cl_kernel kernel;
	cl_uint count;
	struct argument *arguments;
};

struct mapped {
	struct mapped *next;
	const void *pointer;
	struct contents *root;
	int covers, writes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct contents *objects[BUCKETS];
static struct kernel *kernels[BUCKETS];
static struct mapped *maps[BUCKETS];
static size_t entries;
static uint64_t created; /* objects so far */

static size_t bucket_of(const void *address) { return ((uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15)) >> 54; }

/* Returns zeroed memory for an entry, or NULL. */
static void *entry_new(size_t size) {
	void *p = entries < MAX_ENTRIES ? calloc(1, size) : NULL;
	entries += p != NULL;
	return p;
}

/* ---- objects */

static struct contents *contents_find(cl_mem m) {
	struct contents *o = objects[bucket_of(m)];
	while (o && o->object != m)
		o = o->next;
	return o;
}

/* Returns the reset entry of an object, or NULL. */
static struct contents *contents_add(cl_mem m) {
	struct contents *o = contents_find(m);
	if (!o && (o = entry_new(sizeof *o))) {
		o->next = objects[bucket_of(m)];
		objects[bucket_of(m)] = o;
	}
	if (o)
		*o = (struct contents){.next = o->next, .object = m, .number = ++created, .root = o};
	return o;
}

void contents_created(cl_mem m, cl_mem_flags flags, uint64_t whole, int current) {
	pthread_mutex_lock(&lock);
	struct contents *o = contents_add(m);
	if (o) {
		o->whole = whole;
		o->current = current;
		o->read_only = (flags & CL_MEM_READ_ONLY) != 0;
	}
	pthread_mutex_unlock(&lock);
}

void contents_part(cl_mem part, cl_mem parent, cl_mem_flags flags) {
	pthread_mutex_lock(&lock);
	struct contents *whole = contents_find(parent), *o = contents_add(part);
	if (o) {
		o->root = whole ? whole->root : o;
		o->read_only = (flags & CL_MEM_READ_ONLY) || (whole && whole->read_only);
	}
	pthread_mutex_unlock(&lock);
}

void contents_written(cl_mem m) {
	pthread_mutex_lock(&lock);
	struct contents *o = contents_find(m);
	if (o)
		o->root->current = 0;
	pthread_mutex_unlock(&lock);
}

/* ---- kernels */

static struct kernel *find_kernel(cl_kernel kernel) {
	struct kernel *k = kernels[bucket_of(kernel)];
	while (k && k->kernel != kernel)
		k = k->next;
	return k;
}

static struct kernel *add_kernel(cl_kernel kernel) {
	struct kernel *k = find_kernel(kernel);
	if (!k && (k = entry_new(sizeof *k))) {
		k->kernel = kernel;
		k->next = kernels[bucket_of(kernel)];
		kernels[bucket_of(kernel)] = k;
	}
	return k;
}

void contents_kernel(cl_kernel kernel) {
	pthread_mutex_lock(&lock);
	struct kernel *k = add_kernel(kernel);
	if (k)
		k->count = 0;
	pthread_mutex_unlock(&lock);
}

/* Returns the kernel's argument with that index, or NULL. */
static struct argument *argument_of(struct kernel *k, cl_uint index) {
	if (!k->arguments)
		k->arguments = calloc(MAX_ARGUMENTS, sizeof *k->arguments);
	if (!k->arguments || index >= MAX_ARGUMENTS)
		return NULL;
	for (; k->count <= index; k->count++)
		k->arguments[k->count] = (struct argument){0};
	return &k->arguments[index];
}

uint64_t contents_argument(cl_kernel kernel, cl_uint index, cl_mem m) {
	pthread_mutex_lock(&lock);
	const struct contents *o = m ? contents_find(m) : NULL;
	uint64_t number = o ? o->number : 0;
	struct kernel *k = m ? add_kernel(kernel) : find_kernel(kernel);
	struct argument *a = k && (m || index < k->count) ? argument_of(k, index) : NULL;
	if (a)
		a->object = m;
	pthread_mutex_unlock(&lock);
	return number;
}

static uint64_t argument_fact(cl_kernel kernel, cl_uint index, cl_kernel_arg_info name, size_t size) {
	uint64_t value = 0;
	if (!entry_driver.clGetKernelArgInfo || entry_driver.clGetKernelArgInfo(kernel, index, name, size, &value, NULL) != CL_SUCCESS)
		return 0;
	return value;
}

/* Returns a string that the driver has, to be freed, or NULL. */
static char *driver_string(cl_kernel kernel, cl_program program) {
	size_t size = 0;
	cl_int status = program ? entry_driver.clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &size)
				: entry_driver.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, NULL, &size);
	char *text = status == CL_SUCCESS && size > 0 ? calloc(1, size + 1) : NULL;
	if (text && program)
		status = entry_driver.clGetProgramInfo(program, CL_PROGRAM_SOURCE, size, text, NULL);
	else if (text)
		status = entry_driver.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, size, text, NULL);
	if (status == CL_SUCCESS)
		return text;
	free(text);
	return NULL;
}

static int source_reads(cl_kernel kernel, cl_uint index) {
	cl_program program = NULL;
	if (!entry_driver.clGetKernelInfo || !entry_driver.clGetProgramInfo ||
		entry_driver.clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL) != CL_SUCCESS || !program)
		return 0;
	char *source = driver_string(kernel, program), *name = driver_string(kernel, NULL);
	int reads = source && name && signature_reads(source, name, index);
	free(source);
	free(name);
	return reads;
}

/* As objects/shape.c has it. Without the driver's facts the source decides; without a source, the
 * argument may be written. */
static int access_of(cl_kernel kernel, cl_uint index) {
	if (argument_fact(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(cl_kernel_arg_address_qualifier)) == CL_KERNEL_ARG_ADDRESS_CONSTANT ||
		argument_fact(kernel, index, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof(cl_kernel_arg_access_qualifier)) == CL_KERNEL_ARG_ACCESS_READ_ONLY ||
		argument_fact(kernel, index, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof(cl_kernel_arg_type_qualifier)) & CL_KERNEL_ARG_TYPE_CONST ||
		source_reads(kernel, index))
		return ACCESS_READS;
	return ACCESS_WRITES;
}

void contents_launched(cl_kernel kernel) {
	pthread_mutex_lock(&lock);
	struct kernel *k = find_kernel(kernel);
	for (cl_uint i = 0; k && i < k->count; i++) {
		struct argument *a = &k->arguments[i];
		struct contents *o = a->object ? contents_find(a->object) : NULL;
		if (!o || o->read_only || !o->root->current)
			continue;
		/* Few objects are mapped: the driver is not asked about the others, whose first contents are
		 * undefined. */
		if (a->access == ACCESS_UNKNOWN && o->root->mapped)
			a->access = access_of(kernel, i);
		if (a->access != ACCESS_READS)
			o->root->current = 0;
	}
	pthread_mutex_unlock(&lock);
}

/* ---- maps */

static void mapped_add(const void *pointer, struct contents *root, int covers, int writes) {
	struct mapped *p = entry_new(sizeof *p), **at = &maps[bucket_of(pointer)];
	while (*at) /* oldest first: an unmap removes the oldest */
		at = &(*at)->next;
	if ((*at = p))
		*p = (struct mapped){.pointer = pointer, .root = root, .covers = covers, .writes = writes};
}

int contents_mapped(cl_mem m, const void *pointer, cl_map_flags flags, int blocking, uint64_t region) {
	int asks = !(flags & CL_MAP_WRITE_INVALIDATE_REGION) || (flags & (CL_MAP_READ | CL_MAP_WRITE)), current = 0;
	pthread_mutex_lock(&lock);
	struct contents *o = contents_find(m);
	if (o) {
		int covers = o == o->root && region != 0 && region == o->whole;
		current = o->root->current;
		o->root->mapped = 1;
		if (asks && blocking && covers)
			o->root->current = 1;
		mapped_add(pointer, o->root, covers, (flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)) != 0);
	}
	pthread_mutex_unlock(&lock);
	return asks && current;
}

void contents_unmapped(const void *pointer) {
	pthread_mutex_lock(&lock);
	struct mapped **at = &maps[bucket_of(pointer)], *p;
	while ((p = *at) && p->pointer != pointer)
		at = &p->next;
	if (p) {
		*at = p->next;
		if (p->writes && p->covers)
			p->root->current = 1;
		free(p);
		entries--;
	}
	pthread_mutex_unlock(&lock);
}
