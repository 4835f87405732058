/* The program of the session's tests: client SOCKET MODE [ARGS]. Numbers of operations are those of
 * worker_test.go. */
#define _GNU_SOURCE
#include "session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ECHO = 1, MIRROR, EARLY, COUNT, READ, NOTICES, CLOSE, HANG, HANG_UP, MISBEHAVE, LATER, STALL, NOTICE = 0x8200, DATA = 0x8103 };
enum { DEAD = -2, OUT_OF_MEMORY = -6 };

#define CHECK(c) \
	do { \
		if (!(c)) { \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #c); \
			exit(1); \
		} \
	} while (0)

static struct session *s;
static const char *path;
static _Atomic uint64_t told, told_bulk, died, served;
static _Atomic int sending; /* this program holds its own lock */

static unsigned char pattern(uint64_t i, uint64_t n) { return (unsigned char)((i * 2654435761u >> 13) + n); }

static uint64_t random_below(uint64_t n) {
	static _Thread_local uint64_t state = 88172645463325252u;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

static void notice(void *user, const struct notice *n) {
	(void)user;
	CHECK(n->op == NOTICE && session_dispatching() && !atomic_load(&sending));
	struct reply fields = {.at = n->body, .left = n->size};
	uint64_t number = get_word(&fields);
	CHECK(!fields.bad && number == atomic_load(&told));
	if (n->bulk && number % 2 == 0) { /* the bulk of the others is discarded */
		unsigned char *room = malloc(n->bulk);
		struct layout l = layout_flat(room, n->bulk);
		notice_bulk(s, n, &l);
		for (uint64_t i = 0; i < n->bulk; i++)
			CHECK(room[i] == pattern(i, n->bulk));
		free(room);
	}
	atomic_store(&told_bulk, n->bulk);
	atomic_fetch_add(&told, 1);
}

static void on_death(void *user) {
	(void)user;
	CHECK(session_dispatching());
	atomic_fetch_add(&died, 1);
}

static void serve(void *user) {
	(void)user;
	CHECK(!session_dispatching());
	atomic_fetch_add(&served, 1);
}

static struct session *dial(char *why, size_t size) {
	struct session_options o = {.socket = path, .dead_status = DEAD, .memory_status = OUT_OF_MEMORY, .data_op = DATA,
		.notice = notice, .died = on_death, .listener = serve};
	uint32_t leases;
	uint64_t limit;
	struct session *new = session_open(&o, &leases, &limit, why, size);
	if (new)
		CHECK(leases == 1 && limit == 1 << 30);
	return new;
}

static void on_signal(int sig) { (void)sig; }

static void interrupt_often(void) {
	struct sigaction sa = {.sa_handler = on_signal};
	sigaction(SIGALRM, &sa, NULL);
	struct itimerval every = {{0, 700}, {0, 700}};
	setitimer(ITIMER_REAL, &every, NULL);
}

/* ---- calls */

static int32_t call_words(uint16_t op, uint64_t a, uint64_t b, uint64_t c, struct reply *reply) {
	struct request r;
	int32_t status = request_begin(&r, s, op, 24, 0, NULL);
	*reply = (struct reply){.status = status};
	if (status != 0)
		return status;
	put_word(&r, a);
	put_word(&r, b);
	put_word(&r, c);
	return request_call(&r, NULL, reply, NULL);
}

static int32_t plain_call(uint16_t op, uint64_t a) {
	struct reply reply;
	int32_t status = call_words(op, a, 0, 0, &reply);
	reply_free(&reply);
	return status;
}

static int32_t early(uint16_t op, uint64_t a, uint64_t b, uint64_t c) {
	struct request r;
	int32_t status = request_begin(&r, s, op, 24, 0, NULL);
	if (status != 0)
		return status;
	put_word(&r, a);
	put_word(&r, b);
	put_word(&r, c);
	return request_send(&r, NULL);
}

static void echo(uint64_t size, uint64_t seed) {
	unsigned char *data = malloc(size + 1);
	for (uint64_t i = 0; i < size; i++)
		data[i] = pattern(i, seed);
	struct request r;
	CHECK(request_begin(&r, s, ECHO, wire_array(data, size, 1), 0, NULL) == 0);
	put_array(&r, data, size, 1);
	struct reply reply;
	CHECK(request_call(&r, NULL, &reply, NULL) == (int32_t)wire_array(data, size, 1));
	uint64_t count;
	const void *back = get_array(&reply, &count, 1);
	CHECK(count == size && (size == 0 || memcmp(back, data, size) == 0) && !reply.bad && reply.left == 0);
	get_word(&reply);
	CHECK(reply.bad);
	reply_free(&reply);
	free(data);
}

static void mode_echo(uint64_t most, uint64_t seed) {
	for (uint64_t i = 0; i < 100; i++)
		echo(i < 20 ? i : random_below(most), seed + i);
}

/* shape makes a layout with gaps over fresh memory. */
static struct layout shape(uint64_t row, uint64_t rows, uint64_t slices, uint64_t gap) {
	struct layout l = {.row = row, .rows = rows, .row_pitch = row + gap, .slices = slices, .slice_pitch = (row + gap) * rows + gap};
	l.base = calloc(1, l.slice_pitch * slices + 1);
	return l;
}

static unsigned char *cell(const struct layout *l, uint64_t i) {
	uint64_t slice = i / (l->row * l->rows), row = i / l->row % l->rows;
	return l->base + slice * l->slice_pitch + row * l->row_pitch + i % l->row;
}

static void mirror(uint64_t most) {
	uint64_t row = 1 + random_below(most / 8), rows = 1 + random_below(4), slices = 1 + random_below(3);
	struct layout out = shape(row, rows, slices, random_below(9)), in = shape(row * rows, slices, 1, random_below(5));
	for (uint64_t i = 0; i < layout_size(&out); i++)
		*cell(&out, i) = pattern(i, most);
	struct request r;
	CHECK(request_begin(&r, s, MIRROR, 8, layout_size(&out), NULL) == 0);
	put_word(&r, 1);
	struct reply reply;
	CHECK(request_call(&r, &out, &reply, &in) == 0);
	for (uint64_t i = 0; i < layout_size(&in); i++)
		CHECK(*cell(&in, i) == pattern(i, most));
	for (uint64_t i = 0; i + 1 < slices; i++) /* the gaps are not touched */
		for (uint64_t k = in.row; k < in.row_pitch; k++)
			CHECK(in.base[i * in.row_pitch + k] == 0);
	reply_free(&reply);
	free(out.base);
	free(in.base);
}

static void mode_mirror(uint64_t most) {
	for (int i = 0; i < 60; i++)
		mirror(i < 20 ? 64 : most);
}

static void mode_early(uint64_t count) {
	unsigned char data[512];
	memset(data, 7, sizeof data);
	for (uint64_t i = 0; i < count; i++) {
		struct layout l = layout_flat(data, i % 3 ? 0 : random_below(sizeof data));
		struct request r;
		uint64_t before = session_serial(s);
		CHECK(request_begin(&r, s, EARLY, 16, layout_size(&l), NULL) == 0);
		put_word(&r, i);
		put_word(&r, i);
		CHECK(request_send(&r, &l) == 0 && session_serial(s) == before + 1);
	}
	struct reply reply;
	CHECK(call_words(COUNT, 0, 0, 0, &reply) == 0);
	printf("%llu\n", (unsigned long long)get_word(&reply));
	reply_free(&reply);
}

/* ---- tracks */

struct read {
	struct track track;
	pthread_mutex_t *lock;
	_Atomic int done;
};

static void read_done(struct track *t, int32_t status) {
	struct read *r = t->user;
	pthread_mutex_lock(r->lock); /* would never return inside a send of this thread */
	atomic_store(&r->done, status == 0 ? 1 : 2);
	pthread_mutex_unlock(r->lock);
}

static int read_ready(void *arg) { return atomic_load(&((struct read *)arg)->done) != 0; }

static void mode_tracks(uint64_t count, uint64_t most) {
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct read *all = calloc(count, sizeof *all);
	for (uint64_t i = 0; i < count; i++) {
		struct read *r = &all[i];
		uint64_t size = random_below(most);
		r->lock = &lock;
		r->track = (struct track){.into = layout_flat(malloc(size + 1), size), .done = read_done, .user = r};
		struct request q;
		pthread_mutex_lock(&lock);
		CHECK(request_begin(&q, s, READ, 8, 0, &r->track) == 0);
		put_word(&q, size);
		CHECK(request_send(&q, NULL) == 0 && r->track.serial == session_serial(s));
		pthread_mutex_unlock(&lock);
	}
	for (uint64_t i = count; i-- > 0;) {
		struct read *r = &all[i];
		CHECK(session_wait_until(s, read_ready, r) == 0 && r->done == 1);
		for (uint64_t k = 0; k < r->track.into.row; k++)
			CHECK(r->track.into.base[k] == pattern(k, r->track.into.row));
		free(r->track.into.base);
	}
	free(all);
}

/* ---- notices */

static void mode_notices(uint64_t count, uint64_t size, uint64_t bulk) {
	struct reply reply;
	CHECK(call_words(NOTICES, count, size, bulk, &reply) == 0);
	reply_free(&reply);
	printf("%llu of %llu\n", (unsigned long long)told, (unsigned long long)told_bulk);
}

/* While the worker sends more than fits into the ring, this end sends more than fits. */
static void mode_flood(uint64_t count, uint64_t size) {
	unsigned char *data = calloc(1, size);
	struct layout l = layout_flat(data, size);
	CHECK(early(LATER, count, size, 0) == 0);
	atomic_store(&sending, 1);
	for (uint64_t i = 0; i < count; i++) {
		struct request r;
		CHECK(request_begin(&r, s, EARLY, 8, size, NULL) == 0);
		put_word(&r, i);
		CHECK(request_send(&r, &l) == 0);
	}
	atomic_store(&sending, 0);
	CHECK(plain_call(COUNT, 0) == 0);
	CHECK(told == count);
	free(data);
}

/* ---- threads */

static uint64_t thread_rounds, thread_size;

static void *call_often(void *arg) {
	uint64_t me = (uint64_t)(uintptr_t)arg;
	for (uint64_t i = 0; i < thread_rounds; i++) {
		if ((i + me) % 5 == 0)
			CHECK(early(EARLY, i, i, i) == 0);
		else if ((i + me) % 17 == 0)
			mirror(thread_size);
		else
			echo(random_below(64), me);
	}
	return NULL;
}

static void mode_threads(uint64_t threads, uint64_t rounds, uint64_t size, int listener) {
	pthread_t all[64];
	thread_rounds = rounds;
	thread_size = size;
	session_shared(s);
	if (listener)
		CHECK(session_listen(s) == 0);
	for (uint64_t i = 0; i < threads; i++)
		CHECK(pthread_create(&all[i], NULL, call_often, (void *)(uintptr_t)i) == 0);
	for (uint64_t i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
}

static void await(_Atomic uint64_t *word, uint64_t least) {
	for (int i = 0; atomic_load(word) < least; i++) {
		CHECK(i < 10000);
		usleep(1000);
	}
}

static void mode_listener(uint64_t rounds) {
	CHECK(session_listen(s) == 0 && session_listen(s) == 0);
	uint64_t expected = 0;
	for (uint64_t i = 0; i < rounds; i++) {
		atomic_store(&told, 0);
		expected = 1 + random_below(5);
		CHECK(early(LATER, expected, 8, 0) == 0);
		if (i % 3 == 0)
			echo(8, i);
		await(&told, expected);
		uint64_t before = served;
		session_nudge(s);
		await(&served, before + 1);
	}
}

static uint64_t alone(void) {
	struct reply reply;
	CHECK(call_words(COUNT, 0, 0, 0, &reply) == 0);
	get_word(&reply);
	uint64_t n = get_word(&reply);
	reply_free(&reply);
	return n;
}

static void mode_alone(void) {
	for (int i = 0; i < 9; i++)
		CHECK(early(EARLY, 0, 0, 0) == 0);
	uint64_t first = alone();
	session_shared(s);
	for (int i = 0; i < 9; i++)
		CHECK(early(EARLY, 0, 0, 0) == 0);
	printf("%llu then %llu\n", (unsigned long long)first, (unsigned long long)(alone() - first));
}

/* ---- death */

static void *wait_in_vain(void *arg) {
	(void)arg;
	CHECK(plain_call(HANG, 0) == DEAD);
	return NULL;
}

static int never(void *arg) {
	(void)arg;
	return 0;
}

static void *wait_for_nothing(void *arg) {
	CHECK(session_wait_until(s, never, arg) == DEAD);
	return NULL;
}

static void mode_death(uint16_t op, uint64_t arg, int listener) {
	pthread_t waiting[4];
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct read lost = {.lock = &lock, .track = {.done = read_done, .user = &lost}};
	session_shared(s);
	if (listener)
		session_listen(s);
	if (op != MISBEHAVE)
		for (int i = 0; i < 4; i++)
			pthread_create(&waiting[i], NULL, i < 2 ? wait_in_vain : wait_for_nothing, NULL);
	struct request r; /* an early call whose data never arrives */
	CHECK(request_begin(&r, s, EARLY, 8, 0, &lost.track) == 0);
	put_word(&r, 0);
	CHECK(request_send(&r, NULL) == 0);
	CHECK(plain_call(op, arg) == DEAD);
	if (op != MISBEHAVE)
		for (int i = 0; i < 4; i++)
			pthread_join(waiting[i], NULL);
	CHECK(session_dead(s) && session_dead_status(s) == DEAD);
	CHECK(plain_call(ECHO, 0) == DEAD && early(EARLY, 0, 0, 0) == DEAD);
	CHECK(session_wait_until(s, read_ready, &lost) == 0 && lost.done == 2 && died == 1);
	session_poll(s);
	session_wake(s);
	session_nudge(s);
	session_close(s);
	session_close(s);
	CHECK(plain_call(ECHO, 0) == DEAD && died == 1);
}

/* ---- descriptors, fork, close */

static void close_all(void) {
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
}

static void mode_close_all(void) {
	echo(8, 1);
	close_all();
	for (int i = 0; i < 1000 && plain_call(ECHO, 0) != DEAD; i++)
		usleep(1000); /* replies arrive until outboard run sees the end of file */
	CHECK(plain_call(HANG, 0) == DEAD);
	session_close(s);
}

/* Files of the program take all numbers before the session ends. */
static void mode_reuse(void) {
	int pipes[2];
	echo(8, 1);
	close_all();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pipes) == 0); /* on the same device as the session's */
	for (int fd = 3; fd < 1000; fd++)
		if (fd != pipes[0] && fd != pipes[1])
			dup2(pipes[1], fd);
	while (plain_call(ECHO, 0) != DEAD)
		usleep(1000);
	session_close(s);
	for (int fd = 3; fd < 1000; fd++)
		CHECK(fcntl(fd, F_GETFD) >= 0);
	fcntl(pipes[0], F_SETFL, O_NONBLOCK);
	char byte;
	CHECK(read(pipes[0], &byte, 1) < 0 && errno == EAGAIN);
}

static int ring_mapped(void) {
	char line[512];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		found |= strstr(line, "memfd") != NULL;
	fclose(maps);
	return found;
}

static int tasks(void) {
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void mode_close(int listener) {
	pthread_t waiting[4];
	session_shared(s);
	CHECK(ring_mapped());
	int before = tasks();
	if (listener)
		session_listen(s);
	for (int i = 0; i < 4; i++)
		pthread_create(&waiting[i], NULL, i < 2 ? wait_in_vain : wait_for_nothing, NULL);
	usleep(20000);
	session_close(s);
	for (int i = 0; i < 4; i++)
		pthread_join(waiting[i], NULL);
	CHECK(!ring_mapped());
	for (int i = 0; i < 10000 && tasks() != before; i++)
		usleep(1000); /* pthread_join returns before the kernel removes the thread from /proc */
	CHECK(tasks() == before);
}

static void *call_for_ever(void *arg) {
	(void)arg;
	for (;;)
		if (plain_call(ECHO, 0) != 24)
			early(EARLY, 0, 0, 0);
	return NULL;
}

static void at_exit(void) { session_close(s); }

static void mode_exit(void) {
	pthread_t thread;
	session_shared(s);
	session_listen(s);
	for (int i = 0; i < 4; i++)
		pthread_create(&thread, NULL, call_for_ever, NULL);
	usleep(50000);
	atexit(at_exit);
	exit(0);
}

static void mode_fork(void) {
	echo(8, 1);
	for (int i = 0; i < 5; i++) {
		pid_t child = fork();
		if (child == 0) {
			session_forked(s);
			CHECK(plain_call(ECHO, 0) == DEAD && early(EARLY, 0, 0, 0) == DEAD);
			CHECK(session_wait_until(s, never, NULL) == DEAD);
			session_poll(s);
			session_close(s);
			exit(0);
		}
		echo(300, 2);
		int status;
		while (waitpid(child, &status, 0) < 0)
			CHECK(errno == EINTR);
		CHECK(status == 0);
	}
	echo(300, 2);
	session_close(s);
}

/* ---- measuring */

static double now_us(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void mode_bench(uint64_t rounds) {
	CHECK(plain_call(COUNT, 0) == 0);
	double start = now_us();
	for (uint64_t i = 0; i < 20000; i++)
		early(EARLY, i, i, i);
	double middle = now_us();
	CHECK(plain_call(COUNT, 0) == 0);
	printf("early %.0f ns", (middle - start) / 20000 * 1e3);
	for (int listener = 0; listener < 2; listener++) {
		start = now_us();
		for (uint64_t i = 0; i < rounds; i++)
			plain_call(COUNT, 0);
		printf(", round trip %s%.1f us", listener ? "with listener " : "", (now_us() - start) / (double)rounds);
		session_listen(s);
		usleep(100000);
	}
	printf("\n");
}

int main(int argc, char **argv) {
	CHECK(argc > 2);
	char why[256];
	path = argv[1];
	const char *mode = argv[2];
	uint64_t n[4] = {0};
	for (int i = 3; i < argc && i < 7; i++)
		n[i - 3] = strtoull(argv[i], NULL, 0);
	s = dial(why, sizeof why);
	if (strcmp(mode, "refused") == 0) {
		CHECK(!s);
		puts(why);
		return 0;
	}
	if (!s) {
		puts(why);
		return 1;
	}
	errno = 4711;
	if (strcmp(mode, "bench") != 0)
		interrupt_often();
	if (strcmp(mode, "echo") == 0)
		mode_echo(n[0], n[1]);
	else if (strcmp(mode, "mirror") == 0)
		mode_mirror(n[0]);
	else if (strcmp(mode, "early") == 0)
		mode_early(n[0]);
	else if (strcmp(mode, "tracks") == 0)
		mode_tracks(n[0], n[1]);
	else if (strcmp(mode, "notices") == 0)
		mode_notices(n[0], n[1], n[2]);
	else if (strcmp(mode, "flood") == 0)
		mode_flood(n[0], n[1]);
	else if (strcmp(mode, "threads") == 0)
		mode_threads(n[0], n[1], n[2], (int)n[3]);
	else if (strcmp(mode, "listener") == 0)
		mode_listener(n[0]);
	else if (strcmp(mode, "alone") == 0)
		mode_alone();
	else if (strcmp(mode, "death") == 0)
		mode_death((uint16_t)n[0], n[1], (int)n[2]);
	else if (strcmp(mode, "close_all") == 0)
		mode_close_all();
	else if (strcmp(mode, "reuse") == 0)
		mode_reuse();
	else if (strcmp(mode, "close") == 0)
		mode_close((int)n[0]);
	else if (strcmp(mode, "exit") == 0)
		mode_exit();
	else if (strcmp(mode, "fork") == 0)
		mode_fork();
	else if (strcmp(mode, "bench") == 0)
		mode_bench(n[0]);
	else
		return 2;
	return 0;
}
