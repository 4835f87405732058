/* library.h: the state of the library, for the files that look after it. */
#ifndef OUTBOARD_LIBRARY_H
#define OUTBOARD_LIBRARY_H

#include "api.h"

enum { UNOPENED, OPENING, OPEN, FORKED };

struct library {
	pthread_mutex_t lock;      /* opening */
	_Atomic int state;
	_Atomic int shared;        /* more than one thread has called */
	pthread_t first;           /* the thread that called first */
	uint64_t links;            /* bits of those that opened */
	cl_platform_id platform;   /* NULL when none did */
	struct link link[LINKS];
};
extern struct library library;

/* Objects that went inside a handler; api_enter looks. */
extern _Atomic(struct object *) object_dying;
void object_bury(void);
void *object_new_with_id(size_t size, uint32_t kind, uint64_t links, uint64_t id);

/* platform.c, device.c: the objects that are there from the start. 0 when memory is out. */
cl_platform_id platform_new(void);
cl_device_id device_new_root(struct link *);
extern const char platform_forwarded[];

/* notice.c: the session's handlers; user is the link. */
void notice_receive(void *user, const struct notice *);
void notice_died(void *user);

/* callback.c: what the listener runs. */
void callback_run(void *user);

/* event.c */
void event_fail(cl_event, int32_t status);
void event_times(cl_event, struct link *, const uint64_t *times);
void event_watch(cl_event);
/* All events of a link that died. */
void events_died(struct link *);

/* object.c */
/* Calls visit for each living object, which is held meanwhile. */
void object_each(uint32_t kind, void (*visit)(void *object, void *arg), void *arg);

/* opname.c */
const char *op_name(uint32_t op);
const char *status_name(int32_t status);

/* info.c */
static inline cl_int answer_status(cl_int *errcode_ret, cl_int status) {
	if (errcode_ret)
		*errcode_ret = status;
	return status;
}
int blob_copy(struct blob *, const void *data, size_t size);

#endif
