/* memory.h: memory objects. Layer: objects.
 *
 * A memory object in another object's storage (a sub-buffer, an image of a buffer) points to that
 * object as its root; a root points to itself. The state of the storage is in the root alone: where
 * its contents are current, the shadow, the maps. */
#ifndef OUTBOARD_MEMORY_H
#define OUTBOARD_MEMORY_H

#include "api.h"

/* A map that has not been unmapped. */
struct mapping {
	struct mapping *next;
	cl_mem object;             /* the object that was mapped; held */
	unsigned char *pointer;    /* the address returned to the program */
	int writes;                /* unmap writes the region back */
	struct read *fetch;        /* a read that may be in flight, or NULL */
	size_t offset, size;       /* of a buffer */
	size_t origin[3], region[3]; /* of an image */
};

/* A queue that may still be writing the storage; only for contexts over several links. */
struct writer {
	struct writer *next;
	struct link *link;
	cl_command_queue queue;    /* held */
};

struct image {
	cl_image_format format;
	size_t element;            /* bytes */
	size_t width, height, depth, layers; /* as queries report them: 0 where the type has none */
	size_t extent[3];          /* bounds of an origin plus a region */
	size_t row_pitch, slice_pitch; /* as queries report them */
	size_t shadow_row, shadow_slice; /* of the mapped memory */
};

struct _cl_mem {
	struct object o;
	cl_context context;        /* held */
	cl_mem_object_type type;
	cl_mem_flags flags;        /* as queries report them */
	size_t size;
	void *host_ptr;            /* CL_MEM_USE_HOST_PTR: the program's memory */
	cl_mem parent;             /* the object whose storage this one uses, or NULL; held */
	cl_mem root;
	size_t offset;             /* of this object's first byte in the root's storage */
	struct blob properties;    /* as given, with the closing 0 */
	struct image image;
	cl_uint packet_size, max_packets; /* of a pipe */
	_Atomic uint32_t children; /* objects that use this one as their parent */
	uint64_t counted;          /* bytes counted on each link of o.links */
	pthread_mutex_t lock;      /* of the fields below */
	struct destructor *destructors;

	/* Of the storage: valid in roots. */
	_Atomic uint64_t current;  /* links where the contents are current */
	_Atomic uint64_t version;  /* counts the commands that write the contents */
	_Atomic uint64_t shadow_version; /* the version that the mapped memory holds as a whole, or STALE */
	unsigned char *shadow;     /* the mapped memory, unless that is host_ptr */
	size_t storage;            /* bytes of the shadow */
	struct mapping *maps;
	_Atomic uint32_t map_count;
	struct writer *writers;
	int svm;                   /* shared virtual memory: kernels may write it unseen */
	void *svm_pages;           /* the program's pages behind it */
	size_t svm_span;
};

struct _cl_sampler {
	struct object o;
	cl_context context;        /* held */
	cl_bool normalized;
	cl_addressing_mode addressing;
	cl_filter_mode filter;
	struct blob properties;
};

/* ---- memory.c */
enum {
	MEM_ACCESS = CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
	MEM_HOST_ACCESS = CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS,
	MEM_HOST_POINTER = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR,
};
static inline int mem_is_buffer(cl_mem m) { return m->type == CL_MEM_OBJECT_BUFFER; }
static inline int mem_is_pipe(cl_mem m) { return m->type == CL_MEM_OBJECT_PIPE; }
static inline int mem_is_image(cl_mem m) { return !mem_is_buffer(m) && !mem_is_pipe(m); }

int32_t mem_check_flags(cl_mem_flags);
int32_t mem_check_host_ptr(cl_mem_flags, const void *host_ptr);
int32_t mem_check_properties(const cl_mem_properties *);
int32_t mem_check_part_flags(cl_mem whole, cl_mem_flags part);
/* Returns the kernel's access flags, as they are sent. */
uint64_t mem_wire_flags(cl_mem_flags);
/* Returns a part's flags: the program's and those inherited from the parent. */
cl_mem_flags mem_inherit_flags(cl_mem parent, cl_mem_flags);
/* Returns the links of the context with a device that accepts an object of that size. */
uint64_t mem_links(cl_context, uint64_t size);
/* Counts bytes on all those links, or on none: then it returns CL_MEM_OBJECT_ALLOCATION_FAILURE. */
int32_t mem_count(uint64_t links, uint64_t bytes);
void mem_uncount(uint64_t links, uint64_t bytes);
/* Return a new root, with its bytes counted, or a new object in the parent's storage. On failure
 * NULL, and *status. */
cl_mem mem_new_root(cl_context, cl_mem_object_type, cl_mem_flags, size_t size, uint64_t storage, uint64_t links, int32_t *status);
cl_mem mem_new_part(cl_mem parent, cl_mem_object_type, cl_mem_flags, size_t offset, size_t size, uint64_t links, int32_t *status);
int mem_keep_properties(cl_mem, const cl_mem_properties *);
/* Results of a creation on several links: it succeeds when one link accepts it. */
struct creation {
	int sent;
	int32_t status;
};
static inline void creation_note(struct creation *c, int32_t status) {
	if (status == 0)
		c->sent++;
	else
		c->status = status;
}
/* Returns the object, or NULL after a failure on every link. */
cl_mem mem_created(cl_mem, const struct creation *, cl_int *errcode_ret);
void *mem_fail(int32_t status, cl_int *errcode_ret);
static inline int mem_misaligned(cl_mem m, cl_device_id device) {
	uint64_t bits = m->parent ? device_number(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) : 0;
	return bits >= 8 && m->offset % (bits / 8) != 0;
}
/* context_most returns the largest value that the context's devices report; context_has returns
 * true when one of them has a property. */
uint64_t context_most(cl_context, cl_device_info);
int context_has(cl_context, cl_device_info);

#define STALE UINT64_MAX
/* True when the mapped memory holds the contents after all commands enqueued so far: then a map
 * reads nothing. */
static inline int mem_shadow_current(cl_mem root) {
	return !root->svm && atomic_load(&root->shadow_version) == atomic_load(&root->version);
}
/* True for a buffer that the program has created over shared virtual memory. */
static inline int mem_over_svm(cl_mem m) { return m->parent && m->parent->svm; }

/* Sets the initial state: contents that are undefined, or in the program's own memory, need not be
 * read for a map. */
static inline void mem_created_shadow(cl_mem m, const void *contents) {
	if (m == m->root && (!contents || m->host_ptr))
		atomic_store(&m->shadow_version, 0);
}

/* ---- coherence.c */
/* Like command_writes, for a command that replaces the whole object: its old contents are not
 * copied to the link. */
int32_t command_replaces(struct command *, cl_mem);
void writers_drop(cl_mem root);
/* Releases the context's internal queues, when it is destroyed. */
void coherence_forget(cl_context);

#endif
