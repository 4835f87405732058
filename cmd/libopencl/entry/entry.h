/* entry.h: the functions that loaders look up by name, and the recording of calls between a loader
 * and their implementation. Layer: entry.
 *
 * The library has two entrances. As a driver (icd.c) its own calls are the implementation; as a
 * layer of the loader (OPENCL_LAYERS, layer.c) another driver's calls are, and only the recording
 * of the library is used. */
#ifndef OUTBOARD_ENTRY_H
#define OUTBOARD_ENTRY_H

#include "zz_record.h"

#define EXPORTED __attribute__((visibility("default")))

/* The table to which recorded calls are passed on. */
extern const struct _cl_icd_dispatch *entry_next;
/* In a layer, the table of the driver, or of the next layer before it. */
extern struct _cl_icd_dispatch entry_driver;
/* 1 in a layer: the sizes of a call's messages are computed, since there are no messages to
 * measure. */
extern int entry_sizes;

/* The optimisations that are off; 0 in a layer. */
enum { WITHOUT_ASYNC = 1, WITHOUT_SHADOW = 2, WITHOUT_LOCALITY = 4 };
/* The kind of a call, for entry_sent. */
enum { CALL_CREATES = 1, CALL_QUERIES = 2 };
extern int entry_without;
void entry_read_without(void);
/* Returns the serial of the thread's last message. */
uint64_t entry_serial(void);
/* If the optimisation that avoids the wait is off, waits until the worker has executed the messages
 * that a call has sent since the serial `before`, or, where it has sent none, for a round trip. */
void entry_sent(uint64_t before, int kind);

/* Returns the destination of a command's event: the program's, or own, for the times of the
 * device. */
cl_event *entry_event(cl_command_queue, cl_event *wanted, cl_event *own);
/* Has the device's times of a command recorded once it is complete. */
void entry_command(const struct record_call *, cl_event *wanted, cl_event own);
/* Records all commands that are complete now: a call that waits has returned. */
void entry_waited(void);

/* Returns the size on the wire of a list of properties: pairs of words, and a zero. */
static inline size_t entry_list(const void *list) {
	const uint64_t *words = list;
	size_t n = 0;
	while (words && words[n] != 0)
		n += 2;
	return 8 + (words ? 8 * (n + 1) : 0);
}

/* Returns the size of the reply to a query. */
static inline size_t entry_answer(size_t size, const void *value, const size_t *size_ret) {
	return 32 + 8 + wire_padded(size_ret ? *size_ret : value ? size : 0);
}

/* Returns a hash of a value (FNV-1a), by which a reader of the recording recognises equal
 * values. */
static inline uint64_t entry_hash(const void *value, size_t size) {
	const unsigned char *at = value;
	uint64_t hash = UINT64_C(14695981039346656037) ^ size;
	for (size_t i = 0; at && i < size; i++)
		hash = (hash ^ at[i]) * UINT64_C(1099511628211);
	return hash ^ (value != NULL);
}

/* Records the name of a device, in a layer. */
void entry_device(cl_device_id);
/* In a layer, records that a command writes the object. */
void entry_written(const struct record_call *, cl_mem);
/* Returns the size of an image's region in bytes. */
uint64_t entry_image_size(cl_mem image, const size_t *region);

#endif
