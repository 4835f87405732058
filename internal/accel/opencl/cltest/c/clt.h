// A test program is a table of named cases. Each case prints lines "case what: value" that depend
// on the OpenCL implementation alone, then "case: ok" or "case: FAILED". Two runs over two ways to
// reach the same device must print the same lines. A case may print nothing that differs between
// two good runs: no pointers, no times, no thread ids.
#ifndef CLT_H
#define CLT_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct clt_case {
	const char *name;
	void (*run)(void);
};

// clt_main runs the cases that the arguments choose (-case NAME, any number of times; default all)
// and returns the exit status: 0 all held, 1 some failed, 2 wrong arguments. -list prints the names
// of the cases.
int clt_main(int argc, char **argv, const struct clt_case *cases);

// clt_say prints one line "case what: value"; line ends in the value become "~".
__attribute__((format(printf, 2, 3))) void clt_say(const char *what, const char *format, ...);

// clt_code prints one line "case what: CL_NAME".
__attribute__((format(printf, 2, 3))) void clt_code(cl_int code, const char *what, ...);

// clt_name returns the name of an error code, or its number.
const char *clt_name(cl_int code);

// clt_fail marks the running case as failed.
__attribute__((format(printf, 3, 4))) void clt_fail(const char *file, int line, const char *format, ...);

// clt_end leaves the running case; it may be called on the case's own thread only.
_Noreturn void clt_end(void);

// clt_skip prints "case: skipped (why)" and leaves the running case.
_Noreturn void clt_skip(const char *why);

// CHECK records a failure and continues. It may be used on any thread.
#define CHECK(condition) \
	do { \
		if (!(condition)) \
			clt_fail(__FILE__, __LINE__, "%s", #condition); \
	} while (0)

// MUST ends the case when a call does not return CL_SUCCESS.
#define MUST(call) \
	do { \
		cl_int must_code = (call); \
		if (must_code != CL_SUCCESS) { \
			clt_fail(__FILE__, __LINE__, "%s: %s", clt_name(must_code), #call); \
			clt_end(); \
		} \
	} while (0)

// Shared by all cases of a program, created at the first call, never released.
cl_platform_id clt_platform(void);
cl_device_id clt_device(void);
cl_context clt_context(void);
cl_command_queue clt_queue(void); // in order, no profiling

// clt_version returns the device's OpenCL version, 12 for 1.2, 30 for 3.0.
int clt_version(void);

// The following functions create new objects and end the case when that fails.
cl_context clt_new_context(void);
cl_command_queue clt_new_queue(cl_context context, cl_command_queue_properties properties);
cl_program clt_build(const char *source, const char *options);
cl_program clt_build_in(cl_context context, const char *source, const char *options);
cl_kernel clt_kernel(cl_program program, const char *name);
cl_mem clt_buffer(cl_mem_flags flags, size_t size, void *host);

// clt_scratch returns a new directory that is removed when the program ends.
const char *clt_scratch(void);

// clt_write writes a text file and creates the folders above it.
void clt_write(const char *path, const char *text);

// clt_hash returns the FNV-1a hash of the bytes, to print in place of a long value.
uint64_t clt_hash(const void *bytes, size_t size);

// clt_fill fills memory with a pattern that depends on the seed and never repeats soon.
void clt_fill(void *bytes, size_t size, uint32_t seed);

// clt_random is a small random number generator with the same values everywhere.
uint32_t clt_random(uint32_t *state);

// clt_now returns CLOCK_MONOTONIC in nanoseconds.
uint64_t clt_now(void);

#endif
