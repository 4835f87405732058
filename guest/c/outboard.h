/* outboard.h: what a function written in C includes. It needs no C library:
 *
 *   clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -I guest/c -o app.wasm app.c
 *
 * Every request begins with the memory as it was at the start, so static variables
 * may be written to freely. */
#ifndef OUTBOARD_H
#define OUTBOARD_H

#include <stdint.h>

#define OUTBOARD_IMPORT(name) __attribute__((import_module("outboard"), import_name(#name)))

/* The size of the request in bytes. */
OUTBOARD_IMPORT(request_size) int32_t outboard_request_size(void);

/* Copies at most size bytes of the request, from offset on, and returns how many. */
OUTBOARD_IMPORT(request_read) int32_t outboard_request_read(void *to, int32_t size, int32_t offset);

/* Appends to the response. Returns 0, or 1 if the response would be too large; then the
 * call fails. */
OUTBOARD_IMPORT(response_write) int32_t outboard_response_write(const void *from, int32_t size);

/* An entry: OUTBOARD_ENTRY(handle) { ...; return 0; }. "handle" is the usual one. When
 * it returns something else, the response is the text of an error. */
#define OUTBOARD_ENTRY(name) __attribute__((export_name(#name))) int32_t name(void)

/* Called before each request with a fresh random number, if it is there. */
#define OUTBOARD_RESEED(seed) __attribute__((export_name("outboard_reseed"))) void outboard_reseed(uint64_t seed)

#endif
