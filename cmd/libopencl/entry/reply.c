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

/* Returns a text about a program, to be freed, or NULL. */
static char *program_text(cl_program program, cl_program_info name) {
	size_t size = 0;
	if (entry_driver.clGetProgramInfo(program, name, 0, NULL, &size) != CL_SUCCESS || size == 0)
		return NULL;
	char *text = calloc(1, size + 1);
	if (text && entry_driver.clGetProgramInfo(program, name, size, text, NULL) == CL_SUCCESS)
		return text;
	free(text);
	return NULL;
}

/* Returns the source if looking for all kernels in it takes little time: the program is being recorded. */
static char *source_of(cl_program program, size_t names) {
	char *source = program_text(program, CL_PROGRAM_SOURCE);
	if (source && strlen(source) * names <= MOST_READ)
		return source;
	free(source);
	return NULL;
}

static uint64_t kernel_size(const char *source, const char *kernel) {
	int count = source ? signature_count(source, kernel) : -1;
	return KERNEL_FACTS + GROUP_FACTS + wire_padded(strlen(kernel) + 1) + (uint64_t)(count < 0 ? USUAL_ARGUMENTS : count) * ARGUMENT_FACTS;
}

static uint64_t log_size(cl_program program) {
	cl_device_id devices[64];
	size_t size = 0;
	if (entry_driver.clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof devices, devices, &size) != CL_SUCCESS || size < sizeof *devices ||
		entry_driver.clGetProgramBuildInfo(program, devices[0], CL_PROGRAM_BUILD_LOG, 0, NULL, &size) != CL_SUCCESS)
		return 0;
	return wire_padded(size);
}

uint64_t facts_size(cl_program program) {
	char *names = program_text(program, CL_PROGRAM_KERNEL_NAMES), *rest = NULL;
	size_t count = 1;
	for (const char *p = names; p && *p; p++)
		count += *p == ';';
	char *source = names ? source_of(program, count) : NULL;
	uint64_t all = PROGRAM_FACTS + BUILD_FACTS + log_size(program) + (names ? wire_padded(strlen(names) + 1) : 0);
	for (char *kernel = names ? strtok_r(names, ";", &rest) : NULL; kernel; kernel = strtok_r(NULL, ";", &rest))
		all += kernel_size(source, kernel);
	free(names);
	free(source);
	return all;
}
