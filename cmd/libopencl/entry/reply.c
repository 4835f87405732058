/* reply.c: the size of the reply to a build, in a layer, which brings the answers to all queries about
 * the program and its kernels. Layer: entry.
 *
 * The kernels themselves would tell more, but a program that is recorded gets no objects that it has
 * not created: their arguments are counted in the source, and the texts about these estimated. */
#include "reply.h"

#include "entry.h"
#include "signature.h"

#include <stdlib.h>

/* A fact has a head of 32 bytes, its value is padded. The numbers of facts are those of opencl.api. */
enum {
	FACT = 32,
	PROGRAM_FACTS = 4 * FACT + 3 * 8,             /* and the names of its kernels */
	BUILD_FACTS = 4 * FACT + 3 * 8,               /* and the log */
	KERNEL_FACTS = 3 * FACT + 2 * 8,              /* and the kernel's name */
	GROUP_FACTS = 5 * FACT + 4 * 8 + 24,          /* sizes of work groups */
	ARGUMENT_FACTS = 5 * FACT + 3 * 8 + 16 + 8,   /* with the names of type and argument */
	USUAL_ARGUMENTS = 4,                          /* of a kernel whose source is not known */
	MOST_READ = 8 << 20,                          /* bytes of source */
};

/* Returns the number of a kernel's arguments, or -1 if no source tells. */
static int count_arguments(const struct program_sources *sources, const char *kernel) {
	int count = -1;
	for (size_t i = 0; count < 0 && i < sources->count; i++)
		count = signature_count(sources->all[i].text, kernel);
	return count;
}

static uint64_t kernel_size(const struct program_sources *sources, const char *kernel) {
	int count = count_arguments(sources, kernel);
	return KERNEL_FACTS + GROUP_FACTS + wire_padded(strlen(kernel) + 1) + (uint64_t)(count < 0 ? USUAL_ARGUMENTS : count) * ARGUMENT_FACTS;
}

/* Looking for all kernels in the sources must take little time: the program is being recorded. */
static int readable(const struct program_sources *sources, size_t names) {
	size_t size = 0;
	for (size_t i = 0; i < sources->count; i++)
		size += sources->all[i].size;
	return size * names <= MOST_READ;
}

static uint64_t log_size(cl_program program) {
	cl_device_id devices[64];
	size_t size = 0;
	if (entry_driver.clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof devices, devices, &size) != CL_SUCCESS || size < sizeof *devices ||
		entry_driver.clGetProgramBuildInfo(program, devices[0], CL_PROGRAM_BUILD_LOG, 0, NULL, &size) != CL_SUCCESS)
		return 0;
	return wire_padded(size);
}

uint64_t facts_size(cl_program program, const struct program_sources *sources) {
	static const struct program_sources none;
	char *names = program_text(program, CL_PROGRAM_KERNEL_NAMES), *rest = NULL;
	size_t count = 1;
	for (const char *p = names; p && *p; p++)
		count += *p == ';';
	const struct program_sources *read = readable(sources, count) ? sources : &none;
	uint64_t all = PROGRAM_FACTS + BUILD_FACTS + log_size(program) + (names ? wire_padded(strlen(names) + 1) : 0);
	for (char *kernel = names ? strtok_r(names, ";", &rest) : NULL; kernel; kernel = strtok_r(NULL, ";", &rest))
		all += kernel_size(read, kernel);
	free(names);
	return all;
}
