/* api.h: objects, links and commands, shared by all files of the OpenCL driver library.
 * Layer: objects.
 *
 * Lock order: library.lock, then a context's, a program's, a queue's or a memory object's own lock,
 * then the session's send lock (acquired inside request_begin). No lock is held while a user's
 * callback runs or while a reply is awaited.
 */
#ifndef OUTBOARD_API_H
#define OUTBOARD_API_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "session.h"

#define API_CALL CL_API_CALL

/* Callbacks of the calls, by the call's name. */
typedef void(CL_CALLBACK *PFN_context)(const char *, const void *, size_t, void *);
typedef void(CL_CALLBACK *PFN_program)(cl_program, void *);
typedef PFN_context PFN_clCreateContext, PFN_clCreateContextFromType;
typedef void(CL_CALLBACK *PFN_clSetContextDestructorCallback)(cl_context, void *);
typedef void(CL_CALLBACK *PFN_clSetMemObjectDestructorCallback)(cl_mem, void *);
typedef PFN_program PFN_clBuildProgram, PFN_clCompileProgram, PFN_clLinkProgram, PFN_clSetProgramReleaseCallback;
typedef void(CL_CALLBACK *PFN_clSetEventCallback)(cl_event, cl_int, void *);
typedef void(CL_CALLBACK *PFN_clEnqueueNativeKernel)(void *);
typedef void(CL_CALLBACK *PFN_clEnqueueSVMFree)(cl_command_queue, cl_uint, void **, void *);

/* The status of calls that cannot be forwarded. */
static const int32_t api_refusal = CL_INVALID_OPERATION;

enum { LINKS = 64 };                        /* maximum of leases of one program */
enum { ID_PLATFORM = 1, ID_DEVICE = 2, ID_FIRST = 0x100 }; /* object ids; the client assigns ids from ID_FIRST up */

/* A link is one lease: a session with the worker of one device. */
struct link {
	struct session *session;
	uint32_t index;
	uint64_t bit;              /* 1 << index */
	cl_device_id device;
	struct facts *facts;       /* platform and device queries */
	_Atomic uint32_t clock_known;
	_Atomic int64_t clock_offset; /* worker time + offset = the program's CLOCK_MONOTONIC, ns */
	uint64_t memory_limit;
	_Atomic uint64_t memory_used;
	_Atomic int recorded;      /* the worker has sent its whole recording */
	int malformed;             /* the snapshot could not be decoded */
};

/* The head of every object. The loader needs the dispatch table first. */
struct object {
	const struct _cl_icd_dispatch *dispatch;
	uint32_t magic, kind;
	_Atomic uint32_t refs;     /* the program's references, as queries report them */
	_Atomic uint32_t held;     /* one for all references, one for each object that needs it */
	uint64_t id;
	uint64_t links;            /* bits of the links where the object exists */
	_Atomic int32_t failed;    /* a late failure to create it, or 0 */
	struct object *next;       /* private to object.c, as the fields below */
	void (*destroy)(void *object);
	int in_table;
};

/* Returns a new object of size bytes (zeroed), refs 1, with a new id. destroy frees the kind's own
 * memory and drops its holds. NULL when there is no memory. */
void *object_new(size_t size, uint32_t kind, uint64_t links, void (*destroy)(void *object));
/* The same with a given id and not in the table: object_find does not find it. */
void *object_new_with_id(size_t size, uint32_t kind, uint64_t links, uint64_t id, void (*destroy)(void *object));
void object_hold(void *object);
/* Drops a hold, or the one reference of an object that was never returned to the program. All
 * references together are one hold. Dropping the last hold sends release to the object's links,
 * calls destroy and frees the object. Inside a handler this is deferred to the next call of
 * object_reap. */
void object_drop(void *object);
/* Returns the live object with that id and kind (0: any), held; or NULL. */
void *object_find(uint64_t id, uint32_t kind);
int32_t object_retain(void *object);
int32_t object_release(void *object);

/* The loader's dispatch table, with which every object begins. Set by the first call. */
extern const struct _cl_icd_dispatch *object_dispatch;

int api_valid(const void *handle, uint32_t kind);
static inline uint64_t api_id(const void *handle) { return handle ? ((const struct object *)handle)->id : 0; }
/* Every entry point calls it first, with the dispatch table: it opens the links on first use, fails
 * in a forked child, and detects a second thread. Returns 0, or the status that the call
 * returns. */
int32_t library_enter(const struct _cl_icd_dispatch *);

struct _cl_platform_id {
	struct object o;
	struct facts *facts;       /* of the only link, or those common to all links */
};

struct _cl_device_id {
	struct object o;           /* id is the worker's: equal ids of devices of different links are told apart by the link */
	struct link *link;
	cl_device_id parent;       /* NULL for a root device, which is never freed */
	struct facts *facts;       /* link->facts, or a sub-device's own */
	struct blob partition;     /* properties with which a sub-device was created */
	_Atomic(struct refusal *) refused; /* queries that the driver rejects as unknown */
};

struct _cl_context {
	struct object o;
	cl_uint device_count;
	cl_device_id *devices;
	struct blob properties;    /* the program's list, with the closing 0 */
	PFN_context notify;
	void *notify_data;
	struct destructor *destructors;
	struct blob formats;       /* cache of clGetSupportedImageFormats, in format.c */
	pthread_mutex_t lock;
};

/* Callbacks of an object's destruction, last set first. */
struct destructor {
	struct destructor *next;
	void (*call)(void *object, void *user_data);
	void *user_data;
};

struct _cl_command_queue {
	struct object o;           /* links holds one bit */
	cl_context context;
	cl_device_id device;
	struct link *link;
	cl_command_queue_properties properties;
	struct blob property_list; /* as given to clCreateCommandQueueWithProperties */
	cl_uint size;              /* of an on-device queue */
	_Atomic uint64_t sent;     /* serial of the last command sent */
	_Atomic uint64_t finished; /* all commands up to this serial are complete */
	_Atomic int32_t sticky;    /* status of a command that failed after its call had returned; the next synchronising call returns it */
};

struct _cl_event {
	struct object o;           /* links: where it was created; bridged ones are added */
	cl_context context;
	cl_command_queue queue;    /* NULL for user events */
	cl_command_type command;
	uint64_t serial;           /* of its command on its link */
	_Atomic int32_t status;    /* CL_QUEUED .. CL_COMPLETE or an error, as far as known */
	_Atomic uint32_t watched;
	_Atomic uint32_t timed;    /* times are set */
	uint64_t times[5];         /* queued, submit, start, end, complete; program's clock */
	struct event_callback *callbacks;
	pthread_mutex_t lock;
};

/* A command that is being enqueued; it lies on the caller's stack. */
struct command {
	struct session *session;
	struct link *link;
	cl_command_queue queue;
	const uint64_t *waits;     /* NULL when wait_count is 0 */
	uint64_t wait_count;
	uint64_t event;            /* its id, 0 without an event */
	uint64_t before;           /* serial of the thread's last message before the command */
	cl_event created, *out;
	cl_command_type type;
	cl_uint count; /* of list, the program's wait list */
	const cl_event *list;
	int after_all; /* it waits for all earlier commands of its queue, which has no order */
	uint64_t room[16], *heap;
};

/* 0, CL_INVALID_EVENT_WAIT_LIST, or CL_INVALID_CONTEXT for an event of another context. */
int32_t command_check_waits(cl_context, cl_uint count, const cl_event *list);
/* Checks the wait list, bridges events of other links, creates an event when out is not NULL. On
 * failure there is nothing to undo. */
int32_t command_begin(struct command *, cl_command_queue, cl_command_type, cl_uint count, const cl_event *list, cl_event *out);
/* Declare that the command uses the object: check its context and its late failure, and make it
 * present and current on the command's link (coherence.c). command_writes also marks every other
 * link's copy as stale. */
int32_t command_reads(struct command *, cl_mem);
int32_t command_writes(struct command *, cl_mem);
/* Returns the event to the program, or on a failure drops it. Returns status. Must be called in
 * every case after a successful begin. */
int32_t command_end(struct command *, int32_t status);

/* Returns the first of count new ids, unique in the process, also across links. */
uint64_t new_ids(uint64_t count);
struct link *link_at(uint32_t index);
int32_t link_learn_clock(struct link *);
/* Iterates over the links of a bit mask. */
#define FOR_LINKS(l, bits) \
	for (uint64_t bits_ = (bits); bits_ && ((l) = link_at((uint32_t)__builtin_ctzll(bits_)), 1); bits_ &= bits_ - 1)

/* ---- queries */
/* Answers a query with size bytes at value, by the OpenCL rules for param_value_size and
 * param_value_size_ret. */
int32_t info_answer(const void *value, size_t size, size_t param_value_size, void *param_value, size_t *param_value_size_ret);
#define INFO(type, expression) \
	do { \
		type info_ = (expression); \
		return info_answer(&info_, sizeof info_, param_value_size, param_value, param_value_size_ret); \
	} while (0)

/* Facts: query answers that the worker sends in advance. Wire: per fact a 32-byte head {u16 op, u16
 * index, u32 param, u64 object, u64 device, i32 status, u32 size}, then the value padded to 8. */
struct facts *facts_new(const unsigned char *data, size_t size); /* copies; NULL when malformed */
struct facts *facts_hold(struct facts *);
void facts_drop(struct facts *);
/* Returns the fact, or NULL: then the caller queries the worker. */
const void *facts_find(const struct facts *, uint16_t op, uint64_t object, uint64_t device, uint16_t index, uint32_t param, int32_t *status, size_t *size);
void facts_replace(struct facts *, uint16_t op, uint64_t object, uint32_t param, const void *value, size_t size);

/* ---- device.c, event.c, queue.c */
/* Completes the answers to queries of a device with what its worker offers with messages that not
 * every release has. The facts are not shared between threads yet. */
void device_add_offers(struct facts *, uint64_t id);
int device_in_context(cl_context, cl_device_id);
int32_t device_bool(cl_device_id, cl_device_info);
int device_version(cl_device_id); /* 12 for OpenCL 1.2 */
uint64_t device_number(cl_device_id, cl_device_info); /* a value of 4 or 8 bytes; 0 when unknown */
/* Returns CL_QUEUED .. CL_COMPLETE or an error, as far as known; sends nothing. */
int32_t event_status(cl_event);
/* Waits until the event is complete or failed. Returns 0 or an error. */
int32_t event_wait(cl_event);
/* Returns the queue's sticky failure, which it clears, or 0. */
int32_t queue_take_sticky(cl_command_queue);
/* Records that the command with that serial is complete, and with it, in an in-order queue, all
 * earlier ones. */
void queue_reached(cl_command_queue, uint64_t serial);
int queue_in_order(cl_command_queue);
/* A track_match: the end of all commands of the queue implies the end of the read. */
int queue_has_read(const struct track *, uint64_t before, const void *queue);
/* A track_match: the end of a command implies the end of the read. */
int command_implies_read(const struct track *, uint64_t before, const void *command);
cl_event event_new(cl_context, cl_command_queue, cl_command_type, uint64_t links);
void event_set_status(cl_event, int32_t status);
/* Calls run(arg, status) once when the event is complete or failed: on the listener thread, or at
 * once when it already is. Returns 0, or CL_OUT_OF_HOST_MEMORY. */
int32_t event_on_complete(cl_event, void (*run)(void *arg, int32_t status), void *arg);

/* ---- callback.c */
/* Runs run(arg) on the listener thread, in the order of the posts. May be called anywhere, also in
 * handlers: for calls into the program, and for work that a handler must not do. Returns 0, or
 * CL_OUT_OF_HOST_MEMORY. */
int32_t callback_post(struct link *, void (*run)(void *arg), void *arg);
/* Posts a call of the context's error callback, if there is one. May be called anywhere. */
void context_notify(cl_context, const char *text, const void *private_info, size_t size);

#include "zz_wire.h"

#endif
