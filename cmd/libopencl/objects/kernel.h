/* kernel.h: kernels, their arguments, and the facts about both before a launch. Layer: objects. */
#ifndef OUTBOARD_KERNEL_H
#define OUTBOARD_KERNEL_H

#include "program.h"

enum arg_kind { ARG_UNKNOWN, ARG_VALUE, ARG_LOCAL, ARG_POINTER, ARG_IMAGE, ARG_PIPE, ARG_SAMPLER, ARG_QUEUE };

/* The type of an argument, as the driver reports it: ARG_UNKNOWN when the driver does not report
 * it. */
struct arg_shape {
	enum arg_kind kind;
	int reads;         /* the kernel can't write the memory that it points to */
	size_t size;       /* of a value; 0 when unknown */
	size_t tight;      /* of a vector of 3 without its padding, else 0 */
};

/* The form of an argument on the wire: docs/design/0004. */
enum arg_form { FORM_BYTES, FORM_LOCAL, FORM_MEM, FORM_SAMPLER, FORM_QUEUE, FORM_SVM };

/* Limits of a launch on a device. */
struct limits {
	struct limits *next;
	cl_device_id device;
	int built;         /* the program was built for the device */
	int uneven;        /* the last work-group of a dimension may be smaller */
	int empty;         /* a global size of 0 is no error */
	cl_uint dimensions;
	size_t group, items[3], fixed[3];
	uint64_t most;     /* largest global size */
};

/* A kernel of an outcome. */
struct shape {
	struct shape *next;
	struct outcome *outcome;  /* owns it */
	char *name;
	uint64_t number;          /* its object in the facts */
	cl_uint arg_count;
	struct arg_shape *args;
	_Atomic(struct limits *) limits; /* of devices queried so far; grows under the outcome's lock */
};

/* The kernel on one link. */
struct kernel_on {
	struct link *link;
	struct outcome *outcome;  /* held */
	struct shape *shape;
};

struct arg {
	int set;
	enum arg_form form;
	size_t size;              /* as set by the program */
	unsigned char *value;     /* of FORM_BYTES and FORM_SVM: small, or malloc'ed */
	unsigned char small[16];
	_Atomic uint64_t object;  /* id of the object of a handle */
	_Atomic uint64_t mem;     /* the same for a memory object, else 0: launches read it unlocked */
};

struct _cl_kernel {
	struct object o;
	cl_program program;       /* held */
	struct kernel_on *on;     /* one for each link of o.links */
	uint32_t on_count;
	struct shape *shape;      /* of the link with the most complete facts */
	pthread_mutex_t lock;     /* of args */
	struct arg *args;
	_Atomic uint32_t unset;   /* arguments that have no value yet */
	_Atomic uint32_t locals;  /* arguments that are local memory and are set */
};

/* ---- shape.c */
/* Returns the outcome's kernel of that name. NULL when there is none (*status
 * CL_INVALID_KERNEL_NAME) or there is no memory. */
struct shape *outcome_shape(struct outcome *, cl_program, const char *name, int32_t *status);
int shape_knows(const struct shape *); /* whether the kinds of all arguments are known */
/* NULL when there is no memory. */
const struct limits *shape_limits(struct shape *, cl_program, cl_device_id);

/* ---- handle.c */
/* Returns the live memory object, sampler or queue at that address, held; NULL when there is none.
 * Reads no memory at the address. */
struct object *handle_find(const void *address);

/* ---- kernel.c */
const struct kernel_on *kernel_on_link(cl_kernel, const struct link *);
/* Returns a kernel on those links. Takes over the holds of `on` when it succeeds; NULL when there
 * is no memory. */
cl_kernel kernel_new(cl_program, const struct kernel_on *on, uint32_t count, struct shape *);

#endif
