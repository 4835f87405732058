/* loaders.h: the OpenCL loaders of the process, in a layer. Layer: entry. */
#ifndef OUTBOARD_LOADERS_H
#define OUTBOARD_LOADERS_H

/* Adds the loader that contains the address: it has loaded this layer. */
void loaders_add(const void *address);
/* Has every other loader of the process load its layers. */
void loaders_initialise(void);

#endif
