/* record.h: the recording of a process's calls into a file, for `outboard run --trace`.
 * Layer: record.
 *
 * The file consists of chunks of RECORD_CHUNK bytes; a chunk belongs to one stream: of a thread, of
 * a link's worker, or of names. The first chunk of a stream stays mapped: records are written into
 * it, so a record costs no system call and survives the process. When it is full, it is copied to
 * the end of the file by one system call and begins again with the next index. If the process ends
 * between the two, two chunks have that index, with the same contents unless the copy was cut off:
 * the first one in the file counts.
 *
 * internal/accel/recording reads the file; file.go there has the same layout. No function changes
 * errno. */
#ifndef OUTBOARD_RECORD_H
#define OUTBOARD_RECORD_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { RECORD_VERSION = 2, RECORD_CHUNK = 64 << 10 };
enum { STREAM_THREAD = 1, STREAM_LINK = 2, STREAM_NAMES = 3 };
enum { RECORD_CALL = 1, RECORD_DEVICE = 2, RECORD_WORKER = 3, RECORD_THREAD = 4, RECORD_NAME = 5, RECORD_CLOCK = 6 };
enum { RECORD_FAILED = 1, RECORD_SENT = 2, RECORD_WAITED = 4, RECORD_BLOCKING = 8, RECORD_CURRENT = 16, RECORD_NOTICE = 32 };

/* A chunk begins with this. */
struct chunk_head {
	char magic[4];
	uint16_t version, kind;
	uint32_t stream, unused;
	uint32_t pid, link;      /* link: in the stream of a worker */
	uint64_t opened;         /* when the process opened the recording, ns of CLOCK_MONOTONIC */
	_Atomic uint64_t filled; /* the chunk's index in its stream << 32 | valid bytes, the head included */
	_Atomic uint64_t lost;   /* calls of the stream that were dropped for lack of space */
	_Atomic uint64_t others; /* in the file's first chunk: such calls of streams without a chunk */
	uint64_t reserved;
};
_Static_assert(sizeof(struct chunk_head) == 64, "the head's layout is the file's");

/* A record's first word. */
struct record_head {
	uint16_t size;           /* with this head, a multiple of 8 */
	uint8_t kind, flags;
	uint16_t op;
	uint8_t link, waits_high;
};

/* A call. Handles are their addresses. */
struct record_call {
	struct record_head head;
	uint64_t number;         /* thread << 40 | the thread's calls so far */
	uint64_t begin, duration;
	uint64_t queue, event, object, detail;
	uint64_t forward, backward;
	uint64_t serial;         /* of the call's last message */
	uint64_t encode;         /* from begin until that message was written to the ring */
	uint64_t blocked;
};

/* The device's times of a call's command, on the driver's clock. */
struct record_device {
	struct record_head head;
	uint64_t number, queued, start, end;
};

/* Entries recorded by a link's worker: size bytes follow. */
struct record_worker {
	struct record_head head;
	uint64_t size;
};

/* The name of a device: size bytes follow. */
struct record_name {
	struct record_head head; /* op: the device's type, in the API's numbers */
	uint64_t object, size;
};

/* A reading of a worker's clock. */
struct record_clock {
	struct record_head head;
	uint64_t theirs, before, after;
};

/* Opens the process's file in the folder that OUTBOARD_TRACE names. 1 when calls are recorded from
 * now on. A second call has no effect. */
int record_open(void);
int record_on(void);
/* For a forked child: nothing is recorded there. */
void record_forked(void);
/* Ends the recording. Unmaps nothing, since other threads may be inside calls. */
void record_close(void);

/* The call that the thread is recording, NULL for none: lower layers add to it. */
extern _Thread_local struct record_call *record_current;

static inline uint64_t record_now(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Begins a call of the thread. 0 for a call from within another one, which is not recorded by
 * itself. */
int record_begin(struct record_call *, uint16_t op);
/* The call has returned: later time is not part of its duration. */
void record_returned(struct record_call *);
/* Stores the call with the events that it waits for. */
void record_end(struct record_call *, uint32_t count, const void *const *waits);
/* Stores the device's times of a call. */
void record_device(uint64_t number, uint64_t queued, uint64_t start, uint64_t end);
/* Stores the entries that link's worker has sent. One thread at a time. */
void record_worker(uint32_t link, const void *data, size_t size);
/* Stores a reading of the clock of link's worker between two readings of this process's clock: for
 * the offset, and a round trip. One thread at a time. */
void record_clock(uint32_t link, uint64_t theirs, uint64_t before, uint64_t after);
/* Stores the name of the device at an address, once for each address. */
void record_name(uint64_t object, uint16_t kind, const char *name);

#endif
