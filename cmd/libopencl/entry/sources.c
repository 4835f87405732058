/* sources.c: in a layer, the texts of programs that the driver has. Layer: entry. */
#include "sources.h"

#include "entry.h"

#include <stdlib.h>

char *program_text(cl_program program, cl_program_info name) {
	size_t size = 0;
	if (entry_driver.clGetProgramInfo(program, name, 0, NULL, &size) != CL_SUCCESS || size == 0)
		return NULL;
	char *text = calloc(1, size + 1);
	if (text && entry_driver.clGetProgramInfo(program, name, size, text, NULL) == CL_SUCCESS)
		return text;
	free(text);
	return NULL;
}

struct program_sources sources_of(cl_program program, cl_uint count, const cl_program *others) {
	struct program_sources s = {calloc((size_t)count + 1, sizeof *s.all), 0};
	for (size_t i = 0; s.all && i <= count; i++) {
		char *text = program_text(i ? others[i - 1] : program, CL_PROGRAM_SOURCE);
		if (text && *text)
			s.all[s.count++] = (struct include_source){text, strlen(text)};
		else
			free(text);
	}
	return s;
}

void sources_free(struct program_sources *s) {
	for (size_t i = 0; i < s->count; i++)
		free((char *)s->all[i].text);
	free(s->all);
}
