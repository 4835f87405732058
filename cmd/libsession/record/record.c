/* record.c: chunks, streams and records of a recording. Layer: record. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HIGH = 200, MAX_LINKS = 64, NUMBER_SHIFT = 40, MAX_WAITS = 4096, SAME_PID = 1 << 16 };
enum { UNOPENED, RECORDING, ENDED };
#define JOINED 3 /* a recording is at least so many times as large as its trace */
#define DEFAULT_LIMIT (UINT64_C(4) << 30)

struct stream {
	struct chunk_head *window; /* the mapped chunk; NULL before the first record */
	uint64_t used;
	uint64_t calls;
	uint64_t lost;
	uint32_t kind, number, index, link;
	struct stream *next;       /* in the list of streams whose thread has ended */
};

static struct {
	pthread_mutex_t lock;
	_Atomic int state;
	int fd, full;
	dev_t dev;
	ino_t ino;
	uint64_t size, limit, opened;
	uint32_t streams, threads;
	_Atomic(struct chunk_head *) first;
	struct stream *unused;
	pthread_key_t key;
	struct stream links[MAX_LINKS], names;
	uint64_t named[MAX_LINKS];
	pthread_mutex_t name_lock;
} file = {.lock = PTHREAD_MUTEX_INITIALIZER, .name_lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

_Thread_local struct record_call *record_current;
static _Thread_local struct stream *thread_stream;

int record_on(void) { return atomic_load_explicit(&file.state, memory_order_relaxed) == RECORDING; }

/* A thread that ends leaves its stream, and the chunk that is mapped for it, to the next new
 * thread. */
static void thread_ended(void *arg) {
	struct stream *s = arg;
	pthread_mutex_lock(&file.lock);
	s->next = file.unused;
	file.unused = s;
	pthread_mutex_unlock(&file.lock);
}

/* create_file creates the process's file. An earlier program may have had the same process id: the
   process's own before an exec, or that of a process that has ended. */
static int create_file(const char *dir) {
	char path[4096];
	int fd = -1;
	errno = EEXIST;
	for (int i = 0; fd < 0 && errno == EEXIST && i < SAME_PID; i++) {
		if (snprintf(path, sizeof path, "%s/%ld-%d.rec", dir, (long)getpid(), i) >= (int)sizeof path) {
			errno = ENAMETOOLONG;
			return -1;
		}
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	}
	return fd;
}

static int open_file(const char *dir) {
	struct stat st;
	int low = create_file(dir);
	if (low < 0)
		return -1;
	file.fd = fcntl(low, F_DUPFD_CLOEXEC, HIGH); /* programs close or count low numbers */
	if (file.fd >= 0)
		close(low);
	else
		file.fd = low;
	if (fstat(file.fd, &st) != 0)
		return -1;
	file.dev = st.st_dev;
	file.ino = st.st_ino;
	const char *limit = getenv("OUTBOARD_TRACE_LIMIT");
	file.limit = limit ? strtoull(limit, NULL, 10) : DEFAULT_LIMIT;
	file.opened = record_now();
	return pthread_key_create(&file.key, thread_ended);
}

int record_open(void) {
	if (atomic_load(&file.state) != UNOPENED)
		return record_on();
	int saved = errno;
	const char *dir = getenv("OUTBOARD_TRACE");
	pthread_mutex_lock(&file.lock);
	if (atomic_load(&file.state) == UNOPENED) {
		int err = dir && *dir ? open_file(dir) : -1;
		if (err != 0 && dir && *dir)
			fprintf(stderr, "outboard: the calls are not recorded: no file can be made in %s (%s)\n", dir, strerror(errno));
		atomic_store(&file.state, err == 0 ? RECORDING : ENDED);
	}
	pthread_mutex_unlock(&file.lock);
	errno = saved;
	return record_on();
}

void record_forked(void) {
	if (atomic_load(&file.state) == RECORDING)
		atomic_store(&file.state, ENDED);
	thread_stream = NULL;
	record_current = NULL;
}

void record_close(void) {
	if (atomic_exchange(&file.state, ENDED) == RECORDING)
		(void)pthread_key_delete(file.key); /* the destructor's code may be unloaded */
}

/* still_ours returns 0 when the program has closed the descriptor, and its number may mean another
 * file. */
static int still_ours(void) {
	struct stat st;
	return fstat(file.fd, &st) == 0 && st.st_dev == file.dev && st.st_ino == file.ino;
}

/* leaves_room returns 0 when another chunk would leave the disk without room for the trace, which is
 * joined from the recording before that is removed. */
static int leaves_room(void) {
	struct statvfs v;
	if (fstatvfs(file.fd, &v) != 0 || v.f_blocks == 0)
		return 1; /* an unknown size, or none */
	uint64_t size = file.size + RECORD_CHUNK;
	return (uint64_t)v.f_bavail * v.f_frsize >= RECORD_CHUNK + size / JOINED;
}

/* append_chunk returns the offset of another chunk at the end of the file, -1 when there is none. */
static off_t append_chunk(void) {
	if (file.full || !still_ours())
		return -1;
	if (file.size + RECORD_CHUNK > file.limit || !leaves_room()) {
		file.full = 1;
		return -1;
	}
	off_t at = (off_t)file.size;
	file.size += RECORD_CHUNK;
	return at;
}

static void publish(struct stream *s) {
	atomic_store_explicit(&s->window->filled, (uint64_t)s->index << 32 | s->used, memory_order_release);
}

/* map_chunk appends a chunk and maps it. It reserves the chunk's blocks first: otherwise a full disk
 * would cause a SIGBUS in the program. */
static struct chunk_head *map_chunk(void) {
	off_t at = append_chunk();
	if (at < 0)
		return NULL;
	if (posix_fallocate(file.fd, at, RECORD_CHUNK) != 0) {
		file.full = 1;
		return NULL;
	}
	void *p = mmap(NULL, RECORD_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, at);
	return p == MAP_FAILED ? NULL : p;
}

/* begin_window writes the head of a mapped chunk. */
static void begin_window(struct stream *s, struct chunk_head *w) {
	s->number = ++file.streams;
	*w = (struct chunk_head){.version = RECORD_VERSION, .kind = (uint16_t)s->kind, .stream = s->number,
		.pid = (uint32_t)getpid(), .link = s->link, .opened = file.opened};
	s->window = w;
	s->used = sizeof *w;
	publish(s);
	memcpy(w->magic, "OBRC", 4);
}

/* open_window begins a stream's first chunk. The file's first chunk has its head before another thread
 * finds the file full: lost calls of streams without a chunk are counted there. */
static int open_window(struct stream *s) {
	struct chunk_head *none = NULL;
	pthread_mutex_lock(&file.lock);
	struct chunk_head *w = map_chunk();
	if (w) {
		begin_window(s, w);
		atomic_compare_exchange_strong(&file.first, &none, w);
	}
	pthread_mutex_unlock(&file.lock);
	return w != NULL;
}

/* copy_window writes the window's contents to an offset. The C library's pwrite would be a point of
 * cancellation. */
static int copy_window(const struct stream *s, off_t at) {
	for (uint64_t done = 0; done < s->used;) {
		long n = syscall(SYS_pwrite64, file.fd, (const char *)s->window + done, s->used - done, at + (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		done += (uint64_t)n;
	}
	return 0;
}

/* empty_window moves the full window's contents to the end of the file. */
static int empty_window(struct stream *s) {
	pthread_mutex_lock(&file.lock);
	off_t at = append_chunk();
	pthread_mutex_unlock(&file.lock);
	if (at < 0)
		return 0;
	if (copy_window(s, at) != 0) {
		pthread_mutex_lock(&file.lock);
		file.full = 1;
		pthread_mutex_unlock(&file.lock);
		return 0;
	}
	s->index++;
	s->used = sizeof *s->window;
	publish(s);
	return 1;
}

static int make_room(struct stream *s, size_t size) {
	if (s->window && s->used + size <= RECORD_CHUNK)
		return 1;
	int saved = errno;
	int made = s->window ? empty_window(s) : open_window(s);
	errno = saved;
	return made;
}

/* reserve returns space for a record, NULL when there is none; commit makes the record valid. */
static void *reserve(struct stream *s, size_t size) {
	return make_room(s, size) ? (char *)s->window + s->used : NULL;
}

static void count_lost(struct stream *s) {
	struct chunk_head *first = atomic_load(&file.first);
	if (s->window)
		atomic_store_explicit(&s->window->lost, ++s->lost, memory_order_relaxed);
	else if (first)
		atomic_fetch_add(&first->others, 1);
}

static void commit(struct stream *s, size_t size) {
	s->used += size;
	publish(s);
}

static struct stream *stream_new(void) {
	pthread_mutex_lock(&file.lock);
	struct stream *s = file.unused;
	if (s)
		file.unused = s->next;
	else
		s = calloc(1, sizeof *s);
	uint32_t thread = file.threads++;
	pthread_mutex_unlock(&file.lock);
	if (!s)
		return NULL;
	s->kind = STREAM_THREAD;
	s->calls = (uint64_t)thread << NUMBER_SHIFT;
	struct record_device marker = {.head = {.size = sizeof marker, .kind = RECORD_THREAD}, .number = s->calls};
	void *to = reserve(s, sizeof marker);
	if (to) {
		memcpy(to, &marker, sizeof marker);
		commit(s, sizeof marker);
	}
	(void)pthread_setspecific(file.key, s);
	return s;
}

static struct stream *stream_of_thread(void) {
	if (!thread_stream && record_on()) {
		int saved = errno;
		thread_stream = stream_new();
		errno = saved;
	}
	return thread_stream;
}

int record_begin(struct record_call *c, uint16_t op) {
	memset(c, 0, sizeof *c);
	if (record_current || !record_on())
		return 0;
	struct stream *s = stream_of_thread();
	if (!s)
		return 0;
	c->head.op = op;
	c->head.kind = RECORD_CALL;
	c->number = s->calls++;
	record_current = c;
	c->begin = record_now();
	return 1;
}

void record_returned(struct record_call *c) { c->duration = record_now() - c->begin; }

void record_end(struct record_call *c, uint32_t count, const void *const *waits) {
	if (record_current != c)
		return;
	if (count > MAX_WAITS || !waits)
		count = waits ? MAX_WAITS : 0;
	c->head.size = (uint16_t)(sizeof *c + 8 * count);
	struct stream *s = thread_stream;
	int on = record_on();
	char *to = on ? reserve(s, c->head.size) : NULL;
	if (to) {
		memcpy(to, c, sizeof *c);
		if (count)
			memcpy(to + sizeof *c, waits, 8 * count);
		commit(s, c->head.size);
	} else if (on) {
		count_lost(s);
	}
	record_current = NULL; /* last: a signal handler may make calls as well */
}

void record_device(uint64_t number, uint64_t queued, uint64_t start, uint64_t end) {
	struct stream *s = record_on() ? stream_of_thread() : NULL;
	struct record_device d = {.head = {.size = sizeof d, .kind = RECORD_DEVICE}, .number = number, .queued = queued, .start = start, .end = end};
	void *to = s ? reserve(s, sizeof d) : NULL;
	if (!to)
		return;
	memcpy(to, &d, sizeof d);
	commit(s, sizeof d);
}

void record_worker(uint32_t link, const void *data, size_t size) {
	size_t padded = (size + 7) & ~(size_t)7;
	if (!record_on() || link >= MAX_LINKS || size == 0 || padded > RECORD_CHUNK / 2)
		return;
	struct stream *s = &file.links[link];
	s->kind = STREAM_LINK;
	s->link = link;
	struct record_worker w = {.head = {.size = (uint16_t)(sizeof w + padded), .kind = RECORD_WORKER, .link = (uint8_t)link}, .size = size};
	char *to = reserve(s, w.head.size);
	if (!to)
		return;
	memcpy(to, &w, sizeof w);
	memset(to + w.head.size - 8, 0, 8);
	memcpy(to + sizeof w, data, size);
	commit(s, w.head.size);
}

void record_clock(uint32_t link, uint64_t theirs, uint64_t before, uint64_t after) {
	struct record_clock c = {.head = {.size = sizeof c, .kind = RECORD_CLOCK, .link = (uint8_t)link}, .theirs = theirs, .before = before, .after = after};
	struct stream *s = link < MAX_LINKS && record_on() ? &file.links[link] : NULL;
	if (!s)
		return;
	s->kind = STREAM_LINK;
	s->link = link;
	void *to = reserve(s, sizeof c);
	if (!to)
		return;
	memcpy(to, &c, sizeof c);
	commit(s, sizeof c);
}

static int named_before(uint64_t object) {
	for (int i = 0; i < MAX_LINKS; i++) {
		if (file.named[i] == object)
			return 1;
		if (file.named[i] == 0) {
			file.named[i] = object;
			return 0;
		}
	}
	return 1;
}

void record_name(uint64_t object, uint16_t kind, const char *name) {
	size_t size = strlen(name), padded = (size + 7) & ~(size_t)7;
	if (!record_on() || size == 0 || size > 1024)
		return;
	pthread_mutex_lock(&file.name_lock);
	struct stream *s = &file.names;
	s->kind = STREAM_NAMES;
	struct record_name n = {.head = {.size = (uint16_t)(sizeof n + padded), .kind = RECORD_NAME, .op = kind}, .object = object, .size = size};
	char *to = named_before(object) ? NULL : reserve(s, n.head.size);
	if (to) {
		memcpy(to, &n, sizeof n);
		memset(to + n.head.size - 8, 0, 8);
		memcpy(to + sizeof n, name, size);
		commit(s, n.head.size);
	}
	pthread_mutex_unlock(&file.name_lock);
}
