/* calls.h: checks and transfers that several API functions share. Layer: calls. */
#ifndef OUTBOARD_CALLS_H
#define OUTBOARD_CALLS_H

#include "kernel.h"
#include "library.h"
#include "memory.h"
#include "program.h"
#include "zz_calls.h"

/* ---- image.c, format.c */
size_t format_element(const cl_image_format *); /* bytes, 0 for an invalid format */
/* Finds the links of the context that support the format for that kind of image; queries each link
 * once. Returns 0, or a dead link's status. */
int32_t format_links(cl_context, cl_mem_flags, cl_mem_object_type, const cl_image_format *, uint64_t *links);
/* Returns the layout of a region of the image in memory with those pitches. */
struct layout image_layout(cl_mem, const void *base, const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch);
/* Returns CL_INVALID_VALUE unless the region lies in the image. */
int32_t image_region(cl_mem, const size_t *origin, const size_t *region);
int image_sliced(cl_mem_object_type); /* whether it has a slice pitch: arrays and 3D */

/* ---- check.c: argument checks that commands share */
int32_t check_buffer(cl_command_queue, cl_mem); /* context, kind, alignment */
int32_t check_image(cl_command_queue, cl_mem);
/* Must be the last check: an invalid wait list is reported before a refused access. */
int32_t check_host_access(cl_mem, cl_mem_flags refused, cl_uint count, const cl_event *list);
int32_t check_range(cl_mem buffer, size_t offset, size_t size);
/* Checks a rectangle of a buffer and fills in absent pitches. size is SIZE_MAX for the program's
 * memory, whose size is unknown. */
int32_t check_rectangle(size_t size, const size_t *origin, const size_t *region, size_t *row_pitch, size_t *slice_pitch);

/* ---- transfer.c */
/* A non-blocking read in flight. */
struct read {
	struct track track;
	cl_command_queue queue;    /* held */
	cl_event event;            /* held, or NULL */
	cl_mem mem;                /* held: the data may go to its shadow */
	_Atomic int arrived;       /* all of the data has arrived */
	_Atomic int owners;        /* the session, and the mapping that checks arrived */
};
void read_drop(struct read *);
/* The region of an object that a command transfers. */
struct region {
	cl_mem mem;
	size_t offset, size;       /* of a buffer */
	const size_t *origin, *region; /* of an image */
	struct layout host;
};
/* Returns true when the region covers a whole root. */
int region_covers(const struct region *);
/* Send a command after command_begin. The caller drops *kept, when kept is not NULL, with
 * read_drop. */
int32_t region_read(struct command *, const struct region *, cl_bool blocking, struct read **kept);
int32_t region_write(struct command *, const struct region *, cl_bool blocking);
/* Ends the command. A blocking call returns the failure of an earlier command; a call that has
 * waited for the device also implies that earlier commands are complete. */
int32_t region_end(struct command *, int32_t status, cl_bool blocking, int waited);
/* Sends the command as a marker. */
int32_t command_marks(struct command *);
/* Read a region of an object into the program's memory, or write it from there. The caller has
 * checked object and region. */
int32_t read_region(cl_command_queue, cl_command_type, const struct region *, cl_bool blocking, cl_uint count, const cl_event *list, cl_event *event);
int32_t write_region(cl_command_queue, cl_command_type, const struct region *, cl_bool blocking, cl_uint count, const cl_event *list, cl_event *event);

/* ---- map.c */
/* The arguments of a map that buffers and images share. */
struct map_call {
	cl_command_queue queue;
	cl_command_type type;
	cl_bool blocking;
	cl_map_flags flags;
	cl_uint count;
	const cl_event *list;
	cl_event *event;
};
/* Maps bytes of a buffer that the caller has checked. */
void *map_bytes(const struct map_call *, cl_mem buffer, size_t offset, size_t size, cl_int *errcode_ret);
/* Ends the oldest map of the object's storage at the pointer. CL_INVALID_VALUE when there is
 * none. */
int32_t map_end(cl_command_queue, cl_command_type, cl_mem, void *pointer, cl_uint count, const cl_event *list, cl_event *event);
/* Drops all maps of the storage. */
void maps_drop(cl_mem root);

/* ---- marker.c */
/* Enqueues a command that only waits; queries report that type for it. */
int32_t enqueue_mark(cl_command_queue, cl_command_type, cl_uint count, const cl_event *list, cl_event *event);

/* ---- hostwork.c */
/* Enqueues a function of the program's process as a command: run(arg, 0) is called on the listener
 * thread when the command may run, and the command is complete when run returns. When the command
 * fails, run gets the status, and only cleans up. It is called exactly once, unless this function
 * fails. */
int32_t hostwork_enqueue(cl_command_queue, cl_command_type, void (*run)(void *arg, int32_t status), void *arg, cl_uint count, const cl_event *list, cl_event *event);

/* ---- svm.c */
int context_has_svm(cl_context); /* whether a device of it has SVM */

#endif
