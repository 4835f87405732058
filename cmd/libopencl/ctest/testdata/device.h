/* device.h: two simulated links for the tests of memory objects. Commands run at once, except that
 * the data of non-blocking reads arrives when device_deliver is called. Sent messages are logged,
 * one per line. */
#ifndef OUTBOARD_TEST_DEVICE_H
#define OUTBOARD_TEST_DEVICE_H

#include "calls.h"

#include <stdio.h>

enum { DEVICES = 2, LIMIT = 64 << 20, LARGEST = 16 << 20, ALIGN = 128 };

struct session {
	int dead;
};

extern struct session device_sessions[DEVICES];
extern struct link device_links[DEVICES];
extern char device_log[1 << 16];
extern int device_calls; /* round trips */
extern int device_pitch_alignment;

void device_log_clear(void);
/* Delivers the data of reads; status is the status that the worker reports. */
int device_deliver(int32_t status);
/* The bytes of an object on a link, or NULL. */
unsigned char *device_bytes(int link, cl_mem);
int device_objects(void);
cl_context test_context(int links);
cl_command_queue test_queue(cl_context, int link);

#endif
