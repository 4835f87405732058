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

/* Arenas. The steps of an execution, and whoever imports one by name, share memory. A
 * function sees it in its window: OUTBOARD_WINDOW makes room for one. A value is where in
 * the arena it lies and how long it is, so it is handed on without a copy. Everything
 * works without an arena, or a window, too: then values are copied. */

/* Where in the arena the request lies, or -1: then it has to be read. */
OUTBOARD_IMPORT(request_offset) int64_t outboard_request_offset(void);

/* Makes this part of the arena the response, instead of what was written. Returns 0, or 1
 * if there is no such part. */
OUTBOARD_IMPORT(response_place) int32_t outboard_response_place(int32_t offset, int32_t size);

/* Takes room of the arena: zero bytes, at a multiple of 16. Returns where, or -1 if there
 * is none. A call that fails gives its room back. */
OUTBOARD_IMPORT(arena_alloc) int32_t outboard_arena_alloc(int32_t size);

/* Imports. A handle is good for one call of the function; whatever is not dropped is
 * dropped at its end. */

/* Imports "function:F", "function:APP/F", "arena:N", "bucket:N", "secret:N" or "device:N".
 * Returns a handle, or 0: then the error's text is the result. */
OUTBOARD_IMPORT(import) int32_t outboard_import(const char *name, int32_t size);

/* Gives a handle up. An arena is no longer mapped then. */
OUTBOARD_IMPORT(drop) void outboard_drop(int32_t handle);

/* The size of the result: what the last of these calls brought, or its error's text. */
OUTBOARD_IMPORT(result_size) int32_t outboard_result_size(void);

/* Copies at most size bytes of the result, from offset on, and returns how many. */
OUTBOARD_IMPORT(result_read) int32_t outboard_result_read(void *to, int32_t size, int32_t offset);

/* Calls a function with these bytes; those that lie in the window are not copied. Returns
 * 0, and its response is the result, or 1, and its error is. */
OUTBOARD_IMPORT(call) int32_t outboard_call(int32_t handle, const void *from, int32_t size);

/* Makes the bytes of a secret the result. Returns 0, or 1 for an error. */
OUTBOARD_IMPORT(secret) int32_t outboard_secret(int32_t handle);

/* Looks a key up. Returns its revision, and its value is the result; 0 when there is no
 * such key; -1 for an error. */
OUTBOARD_IMPORT(bucket_get) int64_t outboard_bucket_get(int32_t handle, const void *key, int32_t size);

/* Does all of a transaction, or nothing. Returns 0; 1 when a condition was not met, and its
 * number, counted from 0, is the result as decimal digits; 2 for an error. A transaction is
 * a list of
 *
 *   op u8, key u32 and its bytes, revision, delta or milliseconds i64, value u32 and its bytes
 *
 * little-endian, which outboard_op writes. */
OUTBOARD_IMPORT(bucket_txn) int32_t outboard_bucket_txn(int32_t handle, const void *from, int32_t size);

/* Maps an imported arena into the window, behind the execution's. Returns where it begins,
 * and its size, an u64, is the result; NULL for an error. */
OUTBOARD_IMPORT(arena_map) void *outboard_arena_map(int32_t handle);

/* Makes what a device is the result, as JSON. Returns 0, or 1 for an error. */
OUTBOARD_IMPORT(device_info) int32_t outboard_device_info(int32_t handle);

/* Has a device do a list of commands, in their order, and waits for them. Returns 0, and
 * what was read with command 5 is the result, or 1, and the error is. Buffers and programs
 * are told by numbers that the function chooses, and are there until the handle is dropped.
 * A list is made of
 *
 *   op u8, number u32, and then for
 *   1 buffer   size u64                           its contents are zero
 *   2 write    offset u64, data u32 and its bytes
 *   3 program  source u32 and its bytes, options u32 and their bytes; built at once
 *   4 launch   kernel u32 and its name, dimensions u8, as many global sizes u64, as many
 *              local sizes u64 (all 0: the driver chooses), arguments u8, and for each
 *                1 a scalar, u32 and its bytes, 2 a buffer, its number u32,
 *                3 local memory, its size u64
 *   5 read     offset u64, size u32
 *   6 free     a buffer
 *   7 write    offset u64, address u32, size u32  from this memory
 *   8 read     offset u64, address u32, size u32  to this memory
 *
 * little-endian, where number is that of a buffer or, for 3 and 4, of a program. */
OUTBOARD_IMPORT(device_do) int32_t outboard_device_do(int32_t handle, const void *from, int32_t size);

/* For writing lists: each writes a number and returns where the next one goes. */
static inline uint8_t *outboard_put8(uint8_t *to, uint8_t n) {
	*to = n;
	return to + 1;
}

static inline uint8_t *outboard_put32(uint8_t *to, uint32_t n) {
	__builtin_memcpy(to, &n, sizeof n);
	return to + sizeof n;
}

static inline uint8_t *outboard_put64(uint8_t *to, uint64_t n) {
	__builtin_memcpy(to, &n, sizeof n);
	return to + sizeof n;
}

/* A count, and as many bytes. */
static inline uint8_t *outboard_put(uint8_t *to, const void *from, uint32_t size) {
	to = outboard_put32(to, size);
	for (uint32_t i = 0; i < size; i++) to[i] = ((const uint8_t *)from)[i];
	return to + size;
}

/* The operations of a transaction. */
enum {
	OUTBOARD_PUT = 1,
	OUTBOARD_DELETE = 2,
	OUTBOARD_ADD = 3,     /* the number to a decimal number; the value is the least that it may become */
	OUTBOARD_MISSING = 4, /* holds if there is no such key */
	OUTBOARD_AT = 5,      /* holds if the key has this revision */
	OUTBOARD_PUT_NEW = 6, /* holds if there is no such key, and sets its value */
	OUTBOARD_PUT_FOR = 7  /* for so many milliseconds, 1000 at least; then the key is gone */
};

/* Writes one of them; it takes 17 bytes, and the key's, and the value's. */
static inline uint8_t *outboard_op(uint8_t *to, uint8_t op, const void *key, uint32_t key_size, int64_t number, const void *value, uint32_t value_size) {
	to = outboard_put(outboard_put8(to, op), key, key_size);
	return outboard_put(outboard_put64(to, (uint64_t)number), value, value_size);
}

/* Asks for something about the request: a header, a path parameter, "method",
 * "execution". Returns 1, and it is the result, or 0 if there is no such thing. */
OUTBOARD_IMPORT(meta) int32_t outboard_meta(const char *name, int32_t size);

/* Makes room for a window of so many bytes, a multiple of 4096: OUTBOARD_WINDOW(shared, 1 << 20)
 * and the arena, or its beginning, lies at the address shared during a call. */
#define OUTBOARD_WINDOW(name, bytes) \
	static uint8_t name[bytes] __attribute__((aligned(4096))); \
	__attribute__((export_name("outboard_arena"))) void *outboard_arena(int32_t size) { \
		return size <= (int32_t)(bytes) ? name : 0; \
	}

/* An entry: OUTBOARD_ENTRY(handle) { ...; return 0; }. "handle" is the usual one. When
 * it returns something else, the response is the text of an error. */
#define OUTBOARD_ENTRY(name) __attribute__((export_name(#name))) int32_t name(void)

/* Called before each request with a fresh random number, if it is there. */
#define OUTBOARD_RESEED(seed) __attribute__((export_name("outboard_reseed"))) void outboard_reseed(uint64_t seed)

#endif
