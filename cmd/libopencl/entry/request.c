/* request.c: the size of the request of a build, in a layer. Layer: entry.
 *
 * The rules are the library's (calls/build.c), which finds the headers by the same search. */
#include "request.h"

#include "entry.h"

/* The library adds this option to those of a program with a source, and the worker's reply has what the
 * program can query. */
static const char arg_info[] = "-cl-kernel-arg-info";

/* Returns the size of the options that the library sends in place of the program's. */
static uint64_t options_size(const struct includes *found, const char *options) {
	uint64_t size = found->options ? strlen(found->options) : 0;
	if (found->refusal || (options && options_have(options, arg_info, NULL)))
		return size;
	return size + (size ? 1 : 0) + sizeof arg_info - 1;
}

uint64_t request_added(const char *options, const struct program_sources *sources) {
	struct includes found = {0};
	uint64_t added = 0;
	if (includes_find(&found, options, sources->all, sources->count, NULL) == 0)
		added = wire_padded(options_size(&found, options)) - wire_padded(options ? strlen(options) : 0) + wire_padded(found.files_size);
	includes_free(&found);
	return added;
}

uint64_t request_names(cl_uint count, const char **names) {
	uint64_t size = 8;
	for (cl_uint i = 0; i < count; i++)
		size += 8 + wire_padded(strlen(names[i]));
	return count ? size : 0;
}
