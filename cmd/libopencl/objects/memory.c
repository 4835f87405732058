/* memory.c: memory objects: flags, accounting of bytes, creation, destruction. Layer: objects. */
#include "svm.h"

#include <sys/mman.h>

enum { MEM_KNOWN_FLAGS = 0x3ff }; /* CL_MEM_READ_WRITE .. CL_MEM_HOST_NO_ACCESS */

static int several(cl_mem_flags flags) { return (flags & (flags - 1)) != 0; }

int32_t mem_check_flags(cl_mem_flags flags) {
	if (flags & ~((cl_mem_flags)MEM_KNOWN_FLAGS | CL_MEM_KERNEL_READ_AND_WRITE))
		return CL_INVALID_VALUE;
	if (several(flags & MEM_ACCESS) || several(flags & MEM_HOST_ACCESS))
		return CL_INVALID_VALUE;
	if ((flags & CL_MEM_USE_HOST_PTR) && (flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)))
		return CL_INVALID_VALUE;
	return 0;
}

int32_t mem_check_host_ptr(cl_mem_flags flags, const void *host_ptr) {
	int wanted = (flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0;
	return wanted == (host_ptr != NULL) ? 0 : CL_INVALID_HOST_PTR;
}

/* No property is forwarded, so every property is unknown. */
int32_t mem_check_properties(const cl_mem_properties *properties) {
	return properties && properties[0] != 0 ? CL_INVALID_PROPERTY : 0;
}

/* A part's access may not exceed its parent's. Drivers do not check further flags here. */
int32_t mem_check_part_flags(cl_mem whole, cl_mem_flags part) {
	static const cl_mem_flags clashes[][2] = {
		{CL_MEM_WRITE_ONLY, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY},
		{CL_MEM_READ_ONLY, CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY},
		{CL_MEM_HOST_WRITE_ONLY, CL_MEM_HOST_READ_ONLY},
		{CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY},
		{CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY},
	};
	if (part & MEM_HOST_POINTER)
		return CL_INVALID_VALUE;
	for (size_t i = 0; i < sizeof clashes / sizeof *clashes; i++)
		if ((whole->flags & clashes[i][0]) && (part & clashes[i][1]))
			return CL_INVALID_VALUE;
	return 0;
}

uint64_t mem_wire_flags(cl_mem_flags flags) {
	cl_mem_flags access = flags & (MEM_ACCESS | CL_MEM_KERNEL_READ_AND_WRITE);
	return access & MEM_ACCESS ? access : access | CL_MEM_READ_WRITE;
}

cl_mem_flags mem_inherit_flags(cl_mem parent, cl_mem_flags flags) {
	if (!(flags & MEM_ACCESS))
		flags |= parent->flags & MEM_ACCESS;
	if (!(flags & MEM_HOST_ACCESS))
		flags |= parent->flags & MEM_HOST_ACCESS;
	return flags | (parent->flags & MEM_HOST_POINTER);
}

uint64_t mem_links(cl_context context, uint64_t size) {
	uint64_t links = 0;
	for (cl_uint i = 0; i < context->device_count; i++)
		if (size <= device_number(context->devices[i], CL_DEVICE_MAX_MEM_ALLOC_SIZE))
			links |= context->devices[i]->link->bit;
	return links;
}

void mem_uncount(uint64_t links, uint64_t bytes) {
	struct link *link;
	FOR_LINKS(link, links)
		atomic_fetch_sub(&link->memory_used, bytes);
}

/* A limit of 0 means no limit. Adding before the check keeps two threads from exceeding the limit
 * together. */
static int link_count(struct link *link, uint64_t bytes) {
	uint64_t before = atomic_fetch_add(&link->memory_used, bytes);
	if (link->memory_limit == 0 || (before <= link->memory_limit && bytes <= link->memory_limit - before))
		return 1;
	atomic_fetch_sub(&link->memory_used, bytes);
	return 0;
}

int32_t mem_count(uint64_t links, uint64_t bytes) {
	struct link *link;
	uint64_t counted = 0;
	FOR_LINKS(link, links) {
		if (!link_count(link, bytes)) {
			mem_uncount(counted, bytes);
			return CL_MEM_OBJECT_ALLOCATION_FAILURE;
		}
		counted |= link->bit;
	}
	return 0;
}

static void call_destructors(cl_mem m) {
	for (struct destructor *d = m->destructors, *next; d; d = next) {
		next = d->next;
		d->call(m, d->user_data);
		free(d);
	}
}


/* The storage is freed first, then the callbacks run (they may free the program's memory), then
 * holds are dropped. No map is left: each holds its object. */
static void mem_destroy(void *object) {
	cl_mem m = object;
	writers_drop(m);
	if (m->shadow)
		munmap(m->shadow, m->storage);
	svm_unplace(m);
	mem_uncount(m->o.links, m->counted);
	call_destructors(m);
	pthread_mutex_destroy(&m->lock);
	free(m->properties.data);
	if (m->parent) {
		atomic_fetch_sub(&m->parent->children, 1);
		object_drop(m->parent);
	}
	object_drop(m->context);
}


static cl_mem mem_new(cl_context context, cl_mem_object_type type, cl_mem_flags flags, size_t size, uint64_t links) {
	cl_mem m = object_new(sizeof *m, KIND_MEM, links, mem_destroy);
	if (!m)
		return NULL;
	object_hold(context);
	m->context = context;
	m->type = type;
	m->flags = flags;
	m->size = size;
	m->root = m;
	pthread_mutex_init(&m->lock, NULL);
	return m;
}

cl_mem mem_new_root(cl_context context, cl_mem_object_type type, cl_mem_flags flags, size_t size, uint64_t storage, uint64_t links, int32_t *status) {
	*status = mem_count(links, storage);
	if (*status != 0)
		return NULL;
	cl_mem m = mem_new(context, type, flags ? flags : CL_MEM_READ_WRITE, size, links);
	if (!m) {
		mem_uncount(links, storage);
		*status = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	m->counted = storage;
	m->storage = storage;
	atomic_store(&m->shadow_version, STALE);
	atomic_store(&m->current, links);
	return m;
}

cl_mem mem_new_part(cl_mem parent, cl_mem_object_type type, cl_mem_flags flags, size_t offset, size_t size, uint64_t links, int32_t *status) {
	cl_mem m = mem_new(parent->context, type, mem_inherit_flags(parent, flags), size, parent->o.links & links);
	*status = m ? 0 : CL_OUT_OF_HOST_MEMORY;
	if (!m)
		return NULL;
	object_hold(parent);
	atomic_fetch_add(&parent->children, 1);
	m->parent = parent;
	m->root = parent->root;
	m->offset = parent->offset + offset;
	m->host_ptr = parent->host_ptr ? (char *)parent->host_ptr + offset : NULL;
	return m;
}

int mem_keep_properties(cl_mem m, const cl_mem_properties *properties) {
	if (!properties)
		return 1;
	m->properties.data = calloc(1, sizeof *properties);
	m->properties.size = m->properties.data ? sizeof *properties : 0;
	return m->properties.data != NULL;
}

void *mem_fail(int32_t status, cl_int *errcode_ret) {
	if (errcode_ret)
		*errcode_ret = status;
	return NULL;
}

cl_mem mem_created(cl_mem m, const struct creation *creation, cl_int *errcode_ret) {
	if (creation->sent == 0) {
		object_drop(m);
		return mem_fail(creation->status, errcode_ret);
	}
	if (errcode_ret)
		*errcode_ret = CL_SUCCESS;
	return m;
}

uint64_t context_most(cl_context context, cl_device_info name) {
	uint64_t most = 0;
	for (cl_uint i = 0; i < context->device_count; i++) {
		uint64_t n = device_number(context->devices[i], name);
		most = n > most ? n : most;
	}
	return most;
}

int context_has(cl_context context, cl_device_info name) {
	for (cl_uint i = 0; i < context->device_count; i++)
		if (device_bool(context->devices[i], name))
			return 1;
	return 0;
}
