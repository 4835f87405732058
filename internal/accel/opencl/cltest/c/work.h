// A small OpenCL workload with a known result, to be run from many threads and in unusual contexts.
#ifndef WORK_H
#define WORK_H

#include "clt.h"

enum { work_items = 256 };

// Every function returns an OpenCL code and never ends a case, so it may run on any thread and in
// any child.
struct work {
	cl_context context;
	cl_command_queue queue;
	cl_program program;
	cl_kernel kernel;
	cl_mem buffer;
	cl_uint expected[work_items];
};

cl_int work_open(struct work *w);

// work_share creates a queue, a kernel and a buffer of its own in the context and program of
// another workload.
cl_int work_share(struct work *w, const struct work *from);

// work_round writes, launches and reads; it returns 1 when the bytes are wrong.
cl_int work_round(struct work *w, cl_uint seed);

// work_load enqueues commands that take some 100 ms in all, and does not wait for them.
cl_int work_load(struct work *w);

cl_int work_close(struct work *w);

// work_all opens, does some rounds and closes.
cl_int work_all(int rounds);

#endif
