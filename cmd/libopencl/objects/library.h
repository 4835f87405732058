/* library.h: the state of the library: its sessions, and the objects that exist from the start.
 * Layer: objects. */
#ifndef OUTBOARD_LIBRARY_H
#define OUTBOARD_LIBRARY_H

#include "api.h"

enum { UNOPENED, OPENING, OPEN, FORKED };

struct library {
	pthread_mutex_t lock;      /* opening */
	_Atomic int state;
	_Atomic int shared;        /* more than one thread has called */
	pthread_t first;           /* the thread that called first */
	int resend_unchanged_args;             /* sends unchanged arguments again; set before the first call */
	uint64_t links;            /* bits of the links that are open */
	cl_platform_id platform;   /* NULL without a link */
	struct link link[LINKS];
};
extern struct library library;

/* Objects whose destruction a handler has deferred; every call reaps them. */
extern _Atomic(struct object *) object_reap_list;
void object_reap(void);

/* link.c */
/* Records that more than one thread calls. */
void links_share(void);
uint64_t clock_ns(void); /* CLOCK_MONOTONIC */
/* link_record has the link's worker record for a trace, and compares the clocks; link_record_end
 * ends that, and waits for the rest of the recording. */
void link_record(struct link *);
void link_record_end(struct link *);

/* platform.c, device.c: the objects that exist from the start. NULL when there is no memory. */
cl_platform_id platform_new(void);
cl_device_id device_new_root(struct link *);

/* notice.c: handlers of the session; user is the link. */
void notice_receive(void *user, const struct notice *);
void notice_died(void *user);

/* callback.c: options.listener of the sessions. */
void callback_run_all(void *user);

/* event.c */
/* Returns the link whose worker knows the event's status. */
struct link *event_link(cl_event);
/* Waits for all events; returns the last failure of the links. The status of each event is in the
 * event. */
int32_t event_wait_all(cl_uint count, const cl_event *list);
/* Registers a callback of the program. */
int32_t event_add_callback(cl_event, cl_int type, PFN_clSetEventCallback notify, void *user_data);
void event_fail(cl_event, int32_t status);
void event_times(cl_event, struct link *, const uint64_t *times);
void event_watch(cl_event);
/* Fails all events of a link whose session died. */
void events_died(struct link *);

/* dependents.c */
/* A track_match: the completion of the event implies the end of the read, by the order of a queue or
 * because its command waited for the read. A failed command may end before earlier ones. */
int event_implies_read(const struct track *, uint64_t before, const void *event);
/* Enters a command in the lists of the reads for which it waits: before it is sent, and with its
 * serial. */
void command_enter(struct command *);
void command_entered(struct command *, uint64_t serial);

/* object.c */
/* Calls visit for each live object, which is held meanwhile. */
void object_each(uint32_t kind, void (*visit)(void *object, void *arg), void *arg);

/* The destroy functions of kinds whose objects are created in another file. */
void context_destroy(void *), queue_destroy(void *), device_destroy(void *);

/* device.c: statuses of queries that the driver has rejected as unknown. */
int32_t device_refusal(cl_device_id, cl_device_info);
void device_note_refusal(cl_device_id, cl_device_info, int32_t status);

/* queue.c: records that all commands up to the serial are complete, in any order. */
void queue_finished(cl_command_queue, uint64_t serial);

/* names.c */
const char *name_of_op(uint32_t op);
const char *name_of_status(int32_t status);

/* info.c */
static inline cl_int set_errcode(cl_int *errcode_ret, cl_int status) {
	if (errcode_ret)
		*errcode_ret = status;
	return status;
}
int blob_copy(struct blob *, const void *data, size_t size);
/* Completes a worker's answer to a query so that a program that relies on the specified form reads
 * no further: a text gets its NUL, a number of fixed size its missing bytes, as 0. Returns 0 when
 * there is no memory. */
int fact_complete(uint16_t op, uint32_t param, struct blob *);

#endif
