/* signature.h: the parameters of a kernel in a program's source. Layer: entry. */
#ifndef OUTBOARD_SIGNATURE_H
#define OUTBOARD_SIGNATURE_H

/* Returns 1 if the source declares that the kernel can only read what its parameter with that index
 * points to: const, constant, read_only. 0 if not, or if the kernel or the parameter is not found,
 * such as one that a macro makes. */
int signature_reads(const char *source, const char *kernel, unsigned index);

/* Returns how many parameters the source declares for the kernel, -1 if it is not found. */
int signature_count(const char *source, const char *kernel);

#endif
