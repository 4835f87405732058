#define _GNU_SOURCE
#include "clt.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *running = "";
static atomic_int failures;
static jmp_buf leave;

enum { ended = 1, skipped = 2 };

void clt_say(const char *what, const char *format, ...) {
	char value[4096];
	va_list args;
	va_start(args, format);
	vsnprintf(value, sizeof value, format, args);
	va_end(args);
	for (char *at = value; *at; at++)
		if (*at == '\n')
			*at = '~';
	printf("%s %s: %s\n", running, what, value);
}

void clt_code(cl_int code, const char *what, ...) {
	char text[512];
	va_list args;
	va_start(args, what);
	vsnprintf(text, sizeof text, what, args);
	va_end(args);
	clt_say(text, "%s", clt_name(code));
}

void clt_fail(const char *file, int line, const char *format, ...) {
	char text[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	atomic_fetch_add(&failures, 1);
	const char *base = strrchr(file, '/');
	printf("%s FAILED %s:%d: %s\n", running, base ? base + 1 : file, line, text);
}

void clt_end(void) { longjmp(leave, ended); }

void clt_skip(const char *why) {
	printf("%s: skipped (%s)\n", running, why);
	longjmp(leave, skipped);
}

static int run_case(const struct clt_case *c) {
	running = c->name;
	atomic_store(&failures, 0);
	int how = setjmp(leave);
	if (how == 0)
		c->run();
	if (how != skipped)
		printf("%s: %s\n", c->name, atomic_load(&failures) ? "FAILED" : "ok");
	fflush(stdout);
	return atomic_load(&failures) != 0;
}

static bool wanted(int argc, char **argv, const char *name) {
	bool any = false;
	for (int i = 1; i + 1 < argc; i += 2) {
		any = true;
		if (strcmp(argv[i + 1], name) == 0)
			return true;
	}
	return !any;
}

static bool check_arguments(int argc, char **argv, const struct clt_case *cases) {
	for (int i = 1; i < argc; i += 2) {
		const struct clt_case *c = cases;
		if (strcmp(argv[i], "-case") != 0 || i + 1 == argc)
			return false;
		while (c->name && strcmp(c->name, argv[i + 1]) != 0)
			c++;
		if (!c->name)
			return false;
	}
	return true;
}

int clt_main(int argc, char **argv, const struct clt_case *cases) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && strcmp(argv[1], "-list") == 0) {
		for (const struct clt_case *c = cases; c->name; c++)
			puts(c->name);
		return 0;
	}
	if (!check_arguments(argc, argv, cases)) {
		fprintf(stderr, "usage: %s [-list] [-case NAME]...\n", argv[0]);
		return 2;
	}
	int failed = 0;
	for (const struct clt_case *c = cases; c->name; c++)
		if (wanted(argc, argv, c->name))
			failed |= run_case(c);
	return failed;
}

static char scratch[PATH_MAX];
static pid_t scratch_owner;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk) {
	(void)st, (void)type, (void)walk;
	return remove(path);
}

static void remove_scratch(void) {
	if (getpid() == scratch_owner)
		nftw(scratch, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *clt_scratch(void) {
	if (scratch[0])
		return scratch;
	const char *root = getenv("TMPDIR");
	snprintf(scratch, sizeof scratch, "%s/cltest-XXXXXX", root ? root : "/tmp");
	if (!mkdtemp(scratch)) {
		clt_fail(__FILE__, __LINE__, "mkdtemp %s: %s", scratch, strerror(errno));
		clt_end();
	}
	scratch_owner = getpid();
	atexit(remove_scratch);
	return scratch;
}

void clt_write(const char *path, const char *text) {
	char part[PATH_MAX];
	snprintf(part, sizeof part, "%s", path);
	for (char *at = strchr(part + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = 0;
		mkdir(part, 0777);
		*at = '/';
	}
	FILE *file = fopen(path, "w");
	if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
		clt_fail(__FILE__, __LINE__, "write %s: %s", path, strerror(errno));
		clt_end();
	}
}

uint64_t clt_hash(const void *bytes, size_t size) {
	const unsigned char *at = bytes;
	uint64_t hash = 14695981039346656037u;
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ at[i]) * 1099511628211u;
	return hash;
}

uint32_t clt_random(uint32_t *state) {
	uint32_t x = *state;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return *state = x;
}

void clt_fill(void *bytes, size_t size, uint32_t seed) {
	unsigned char *at = bytes;
	uint32_t state = seed * 2654435761u + 1;
	for (size_t i = 0; i < size; i++)
		at[i] = (unsigned char)(clt_random(&state) >> 11);
}

uint64_t clt_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
