/* program.h: programs, the outcomes of builds, and the shapes of their kernels. Layer: objects.
 *
 * Lock order: a program's lock, then an outcome's.
 */
#ifndef OUTBOARD_PROGRAM_H
#define OUTBOARD_PROGRAM_H

#include "api.h"
#include "include.h"

/* The options of a build, shared by its outcomes on all links. */
struct build_text {
	_Atomic uint32_t refs;
	char *options;             /* the program's options, "" for none */
	int arg_info_added;        /* -cl-kernel-arg-info was added to the options sent */
	int arg_info_hidden;       /* the kernels have argument types that the program has not requested */
	struct includes headers;   /* the headers found, and the options sent */
};

/* The result of the last build on one link. Kernels hold it, so a rebuild does not free their
 * facts. */
struct outcome {
	_Atomic uint32_t refs;
	struct link *link;
	struct facts *facts;       /* NULL when the build was rejected by the library */
	struct build_text *text;
	pthread_mutex_t lock;
	struct shape *shapes;      /* of the kernels that were created; freed with the outcome */
	void (*free_shapes)(struct shape *);
};

enum program_origin { FROM_SOURCE, FROM_BINARY, FROM_BUILTIN, FROM_IL, FROM_LINK };

struct _cl_program {
	struct object o;
	cl_context context;        /* held */
	cl_uint device_count;
	cl_device_id *devices;
	enum program_origin origin;
	struct blob source;        /* with a closing NUL; NULL for another origin */
	struct blob il;
	size_t *binary_sizes;      /* as last returned to the program, or NULL */
	_Atomic uint32_t kernels;  /* kernel objects of this program */
	_Atomic uint32_t building; /* a build is running */
	pthread_mutex_t lock;
	struct outcome *outcomes[LINKS];
};

/* ---- program.c */
/* Returns a program for all devices of the context (devices NULL) or some of them, on their
 * links. */
cl_program program_new(cl_context, enum program_origin, cl_uint device_count, const cl_device_id *devices);
void *program_fail(int32_t status, cl_int *errcode_ret);
/* Returns 0 when the devices belong to the context and none is repeated, else CL_INVALID_VALUE or
 * CL_INVALID_DEVICE. */
int32_t devices_check(cl_context, cl_uint count, const cl_device_id *devices);
uint64_t devices_links(cl_uint count, const cl_device_id *devices);
/* Stores the ids of the devices that are on the link, and returns their number. */
uint64_t devices_on(const struct link *, cl_uint count, const cl_device_id *devices, uint64_t *ids);
int program_has_device(cl_program, cl_device_id);

/* ---- outcome.c */
struct build_text *build_text_new(const char *options);
struct build_text *build_text_hold(struct build_text *);
void build_text_drop(struct build_text *);
/* Takes ownership of the facts' bytes and frees them. Returns NULL when there is no memory or they
 * are malformed. */
struct outcome *outcome_new(struct link *, struct blob *facts, struct build_text *);
void outcome_drop(struct outcome *);
/* Returns the program's outcome on a link, held; or NULL. */
struct outcome *program_outcome(cl_program, uint32_t link);
void program_set_outcome(cl_program, uint32_t link, struct outcome *); /* takes ownership of the hold */
/* Returns the names in CL_PROGRAM_KERNEL_NAMES, when the program was built for a device of this
 * link. */
const char *outcome_kernels(const struct outcome *, cl_program);
cl_build_status outcome_status(const struct outcome *, cl_program, cl_device_id);

/* ---- helper.c */
/* Like pthread_create, with all signals blocked: the program's handlers must not run on the
 * library's threads. */
int thread_start_blocked(pthread_t *, void *(*run)(void *), void *argument);
/* Runs a function on a thread of the library, with all signals blocked. Returns 0, or an error when
 * no thread could be created. */
int helper_start(void (*run)(void *), void *argument);
/* Waits at most a second for helpers; called when the sessions are closed and the library is
 * unloaded. */
void helpers_join(void);

#endif
