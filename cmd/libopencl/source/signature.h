/* signature.h: the parameters of a kernel as its source declares them. Layer: source. */
#ifndef OUTBOARD_SIGNATURE_H
#define OUTBOARD_SIGNATURE_H

#include <stddef.h>

enum arg_kind { ARG_UNKNOWN, ARG_VALUE, ARG_LOCAL, ARG_POINTER, ARG_IMAGE, ARG_PIPE, ARG_SAMPLER, ARG_QUEUE };

struct arg_shape {
	enum arg_kind kind;
	int reads;         /* the kernel can't write what it points to */
	size_t size;       /* of a value; 0 when unknown */
	size_t tight;      /* of a vector of 3 without its padding, else 0 */
};

/* Reads the kinds of a kernel's arguments from the program's source; what it can't tell stays ARG_UNKNOWN. */
void signature_read(const char *source, const char *name, unsigned count, struct arg_shape *);
/* Size of a scalar or vector type, 0 for all others. */
size_t type_size(const char *name, size_t name_size, size_t *tight);

#endif
