/* entry.h: what loaders find by name, and the recording of calls between a loader and their implementation. Layer: entry.
 *
 * The library has two entrances. As a driver (icd.c) its own calls are the implementation; as a layer of the loader
 * (OPENCL_LAYERS, layer.c) another driver's are, and nothing of the library but the recording is used.
 */
#ifndef OUTBOARD_ENTRY_H
#define OUTBOARD_ENTRY_H

#include "zz_record.h"

#define EXPORTED __attribute__((visibility("default")))

/* Where recorded calls go. */
extern const struct _cl_icd_dispatch *entry_next;
/* In a layer, the driver, or the next layer before it. */
extern struct _cl_icd_dispatch entry_driver;
/* 1 in a layer: what the messages of a call would measure is computed, since there are none. */
extern int entry_sizes;

/* Which optimisations are off; 0 in a layer. */
enum { WITHOUT_ASYNC = 1, WITHOUT_SHADOW = 2, WITHOUT_LOCALITY = 4 };
/* What a call is to entry_sent. */
enum { CALL_CREATES = 1, CALL_ASKS = 2 };
extern int entry_without;
void entry_read_without(void);
/* The serial of the thread's last message. */
uint64_t entry_serial(void);
/* Waits for the worker to have executed what a call has sent since the serial `before`, or, where it has sent nothing, for a
 * round trip, if the optimisation that spares that is off. */
void entry_sent(uint64_t before, int kind);

/* Where a command's event goes: to the program, or, for the times of the device, to own. */
cl_event *entry_event(cl_command_queue, cl_event *wanted, cl_event *own);
/* Has the device's times of a command recorded once it is complete. */
void entry_command(const struct record_call *, cl_event *wanted, cl_event own);
/* All commands that are complete are recorded now: a call that waits has returned. */
void entry_waited(void);

/* The size on the wire of a list of words that a zero ends. */
static inline size_t entry_list(const void *list) {
	const uint64_t *words = list;
	size_t n = 0;
	while (words && words[n] != 0)
		n++;
	return 8 + 8 * n;
}

/* The size of the reply to a query. */
static inline size_t entry_answer(size_t size, const void *value, const size_t *size_ret) {
	return 32 + 8 + wire_padded(size_ret ? *size_ret : value ? size : 0);
}

/* A hash of a value (FNV-1a), so that a reader of the recording knows equal ones. */
static inline uint64_t entry_hash(const void *value, size_t size) {
	const unsigned char *at = value;
	uint64_t hash = UINT64_C(14695981039346656037) ^ size;
	for (size_t i = 0; at && i < size; i++)
		hash = (hash ^ at[i]) * UINT64_C(1099511628211);
	return hash ^ (value != NULL);
}

/* Records what a device is called, in a layer. */
void entry_device(cl_device_id);
/* What a region of an image measures. */
uint64_t entry_image_size(cl_mem image, const size_t *region);

#endif
