/* The client end in the tests of the C ring: executes its arguments over the ring in descriptor 3,
 * while a timer interrupts it.
 *
 *   echo N SEED     reads N bytes and writes them back, in pieces of random size
 *   source N SEED   writes N bytes of the pattern
 *   sink N SEED     reads N bytes and checks the pattern
 *   kick            sleeps in ring_next until another thread kicks
 *   closed          waits for the end and prints the closed word
 *   open            only opens, and prints the result */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "../ring/ring.h"

static uint64_t state;

static size_t random_below(size_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (size_t)(state >> 33) % n;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void on_signal(int sig) { (void)sig; }

static void interrupt_often(void)
{
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_signal; /* without SA_RESTART */
	sigaction(SIGALRM, &sa, NULL);
	struct itimerval every = { { 0, 300 }, { 0, 300 } };
	setitimer(ITIMER_REAL, &every, NULL);
}

static void fail(const char *what, ring *r)
{
	fprintf(stderr, "%s: closed %u, errno %d\n", what, r ? ring_closed(r) : 0, errno);
	exit(1);
}

static void put(ring *r, const unsigned char *p, size_t n)
{
	while (n > 0) {
		size_t got;
		void *to = ring_reserve(r, 1, &got, -1);
		if (to == NULL)
			fail("reserve", r);
		got = least(n, got);
		memcpy(to, p, got);
		ring_commit(r, got);
		p += got, n -= got;
	}
}

static void echo(ring *r, size_t n)
{
	while (n > 0) {
		size_t got;
		const unsigned char *p = ring_next(r, 1, &got, -1);
		if (p == NULL)
			fail("next", r);
		got = least(least(n, got), 1 + random_below(ring_area(r)));
		put(r, p, got);
		ring_release(r, got);
		n -= got;
	}
}

static unsigned char pattern(uint64_t at) { return (unsigned char)(at * 2654435761u >> 13); }

static void source(ring *r, size_t n)
{
	for (size_t at = 0; at < n;) {
		size_t got;
		unsigned char *p = ring_reserve(r, 1, &got, -1);
		if (p == NULL)
			fail("reserve", r);
		got = least(least(n - at, got), 1 + random_below(ring_area(r)));
		for (size_t i = 0; i < got; i++)
			p[i] = pattern(at + i);
		ring_commit(r, got);
		at += got;
	}
}

static void sink(ring *r, size_t n)
{
	for (size_t at = 0; at < n;) {
		size_t got;
		const unsigned char *p = ring_next(r, 1, &got, -1);
		if (p == NULL)
			fail("next", r);
		got = least(least(n - at, got), 1 + random_below(ring_area(r)));
		for (size_t i = 0; i < got; i++)
			if (p[i] != pattern(at + i))
				fail("pattern", r);
		ring_release(r, got);
		at += got;
	}
}

static void *kicker(void *r)
{
	ring_kick(r);
	return NULL;
}

static void kick(ring *r)
{
	pthread_t t;
	size_t got;
	pthread_create(&t, NULL, kicker, r);
	if (ring_next(r, 1, &got, -1) != NULL || ring_closed(r) != 0)
		fail("kick", r);
	pthread_join(t, NULL);
	if (ring_next(r, 1, &got, 5) != NULL || ring_closed(r) != 0)
		fail("time limit", r);
}

int main(int argc, char **argv)
{
	ring *r = NULL;
	errno = 42;
	int err = ring_open(3, &r);
	if (argc > 1 && strcmp(argv[1], "open") == 0) {
		printf("%d\n", err);
		return 0;
	}
	if (err != 0 || argc < 2)
		fail("open", NULL);
	close(3);
	size_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	state = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	interrupt_often();
	errno = 42;
	if (strcmp(argv[1], "echo") == 0)
		echo(r, n);
	else if (strcmp(argv[1], "source") == 0)
		source(r, n);
	else if (strcmp(argv[1], "sink") == 0)
		sink(r, n);
	else if (strcmp(argv[1], "kick") == 0)
		kick(r);
	else {
		size_t got;
		while (ring_next(r, 1, &got, -1) != NULL)
			ring_release(r, got);
		printf("%u\n", ring_closed(r));
	}
	if (errno != 42)
		fail("errno changed", r);
	if (strcmp(argv[1], "source") == 0)
		ring_close(r, RING_DONE);
	ring_unmap(r);
	return 0;
}
