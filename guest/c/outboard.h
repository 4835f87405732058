/* outboard.h: the library for functions written in C. It needs no C library:
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

/* Streams. A function that imports one of these two gets a request by HTTP whose body is larger
 * than 32 KiB, or of unknown length, in parts: the request is what comes first, of an HTTP message
 * its head, and the rest is read. So neither request nor response has to fit into memory. */

/* Copies the next bytes of what follows the request, at most size, and waits for the first of
 * them. Returns how many, 0 at the end, or -1: then the error's text is the result. */
OUTBOARD_IMPORT(body_read) int32_t outboard_body_read(void *to, int32_t size);

/* Sends what was written of the response, and waits for a slow client. Returns 0, or 1: then the
 * error's text is the result. An HTTP message begins with its head, which has no
 * Transfer-Encoding. If the function fails afterwards, the client's connection is cut. */
OUTBOARD_IMPORT(response_flush) int32_t outboard_response_flush(void);

/* Arenas. The steps of an execution, and the functions that import an arena by name, share
 * memory. It is mapped into the function's window, which OUTBOARD_WINDOW reserves. A value
 * is an offset and a size in the arena, so it is passed on without a copy. Without an arena
 * or a window values are copied. */

/* Returns the offset of the request in the arena, or -1: then it has to be read. */
OUTBOARD_IMPORT(request_offset) int64_t outboard_request_offset(void);

/* Makes this part of the arena the response, and discards what was written. Returns 0, or 1
 * if the part is not within the arena. */
OUTBOARD_IMPORT(response_place) int32_t outboard_response_place(int32_t offset, int32_t size);

/* Allocates zero bytes in the arena, aligned to 16. Returns the offset, or -1 if the arena
 * is full. The allocations of a call that fails are released. */
OUTBOARD_IMPORT(arena_alloc) int32_t outboard_arena_alloc(int32_t size);

/* Imports. A handle is valid during one call of the function, and is dropped at its end if
 * it was not dropped before. */

/* Imports "function:F", "function:APP/F", "arena:N", "bucket:N", "secret:N" or "device:N".
 * Returns a handle, or 0: then the error's text is the result. */
OUTBOARD_IMPORT(import) int32_t outboard_import(const char *name, int32_t size);

/* Releases a handle. An arena is unmapped. */
OUTBOARD_IMPORT(drop) void outboard_drop(int32_t handle);

/* Returns the size of the result: the value of the last of these calls, or its error's text. */
OUTBOARD_IMPORT(result_size) int32_t outboard_result_size(void);

/* Copies at most size bytes of the result, from offset on, and returns how many. */
OUTBOARD_IMPORT(result_read) int32_t outboard_result_read(void *to, int32_t size, int32_t offset);

/* Calls a function with these bytes, which are not copied if they are in the window. Returns
 * 0, and the result is its response, or 1, and the result is its error. */
OUTBOARD_IMPORT(call) int32_t outboard_call(int32_t handle, const void *from, int32_t size);

/* Makes the bytes of a secret the result. Returns 0, or 1 for an error. */
OUTBOARD_IMPORT(secret) int32_t outboard_secret(int32_t handle);

/* Looks a key up. Returns its revision, and its value is the result; 0 if there is no
 * such key; -1 for an error. */
OUTBOARD_IMPORT(bucket_get) int64_t outboard_bucket_get(int32_t handle, const void *key, int32_t size);

/* Executes all of a transaction, or nothing. Returns 0; 1 if a condition is not met, and the
 * result is its index in decimal digits; 2 for an error. A transaction is a list of
 *
 *   op u8, key u32 and its bytes, revision, delta or milliseconds i64, value u32 and its bytes
 *
 * little-endian, which outboard_op writes. */
OUTBOARD_IMPORT(bucket_txn) int32_t outboard_bucket_txn(int32_t handle, const void *from, int32_t size);

/* Maps an imported arena into the window, behind the execution's. Returns its address, and
 * the result is its size, a u64; NULL for an error. */
OUTBOARD_IMPORT(arena_map) void *outboard_arena_map(int32_t handle);

/* Makes the description of a device the result, as JSON. Returns 0, or 1 for an error. */
OUTBOARD_IMPORT(device_info) int32_t outboard_device_info(int32_t handle);

/* Executes a list of commands on a device, in order, and waits for them. Returns 0, and the
 * result is what command 5 has read, or 1, and the result is the error. The function
 * identifies buffers and programs by numbers of its choice; they live until the handle is
 * dropped. A list consists of
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

/* For encoding lists: each writes a number and returns the address after it. */
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

/* Writes a size, and that many bytes. */
static inline uint8_t *outboard_put(uint8_t *to, const void *from, uint32_t size) {
	to = outboard_put32(to, size);
	for (uint32_t i = 0; i < size; i++) to[i] = ((const uint8_t *)from)[i];
	return to + size;
}

/* The operations of a transaction. */
enum {
	OUTBOARD_PUT = 1,
	OUTBOARD_DELETE = 2,
	OUTBOARD_ADD = 3,     /* adds the number to a decimal number; the value is the least allowed sum */
	OUTBOARD_MISSING = 4, /* the condition that the key does not exist */
	OUTBOARD_AT = 5,      /* the condition that the key has this revision */
	OUTBOARD_PUT_NEW = 6, /* sets the value, on the condition that the key does not exist */
	OUTBOARD_PUT_FOR = 7  /* sets the value with a time to live in milliseconds, 1000 at least */
};

/* Encodes an operation in 17 bytes, plus those of the key and the value. */
static inline uint8_t *outboard_op(uint8_t *to, uint8_t op, const void *key, uint32_t key_size, int64_t number, const void *value, uint32_t value_size) {
	to = outboard_put(outboard_put8(to, op), key, key_size);
	return outboard_put(outboard_put64(to, (uint64_t)number), value, value_size);
}

/* Looks up metadata of the request: a header, a path parameter, "method", "execution".
 * Returns 1, and the result is the value, or 0 if the key does not exist. */
OUTBOARD_IMPORT(meta) int32_t outboard_meta(const char *name, int32_t size);

/* Reserves a window of that many bytes, a multiple of 4096: with OUTBOARD_WINDOW(shared, 1 << 20)
 * the arena, or its beginning, is at the address shared during a call. */
#define OUTBOARD_WINDOW(name, bytes) \
	static uint8_t name[bytes] __attribute__((aligned(4096))); \
	__attribute__((export_name("outboard_arena"))) void *outboard_arena(int32_t size) { \
		return size <= (int32_t)(bytes) ? name : 0; \
	}

/* Defines an entry: OUTBOARD_ENTRY(handle) { ...; return 0; }. "handle" is the default one. If
 * it does not return 0, the response is the text of an error. */
#define OUTBOARD_ENTRY(name) __attribute__((export_name(#name))) int32_t name(void)

/* Defines a function that is called before each request with a random number. */
#define OUTBOARD_RESEED(seed) __attribute__((export_name("outboard_reseed"))) void outboard_reseed(uint64_t seed)

#endif
