/* library.c: the library's life. Nothing happens when it is loaded; the first call opens a session for each lease. */
#include "library.h"
#include "program.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { PROTOCOL = 1, SNAPSHOT_S = 60 };

struct library library = {.lock = PTHREAD_MUTEX_INITIALIZER};

void session_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct link *link_at(uint32_t index) { return &library.link[index]; }

static uint64_t now_ns(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- opening */

static struct session *dial(struct link *link, const char *path, uint32_t *leases) {
	struct session_options options = {
		.socket = path,
		.lease = link->index,
		.dead_status = CL_DEVICE_NOT_AVAILABLE,
		.memory_status = CL_OUT_OF_HOST_MEMORY,
		.data_op = OP_data,
		.notice = notice_receive,
		.died = notice_died,
		.listener = callback_run,
		.user = link,
	};
	char why[4200];
	struct session *s = session_open(&options, leases, &link->memory_limit, why, sizeof why);
	if (!s)
		session_say("no device: %s", why);
	return s;
}

static void prepare(uint32_t index, const char *path, uint32_t *leases) {
	struct link *link = link_at(index);
	link->index = index;
	link->bit = UINT64_C(1) << index;
	link->session = dial(link, path, leases);
}

struct snapshot_wait {
	struct link *link;
	uint64_t deadline;
};

static int snapshot_there(void *arg) {
	struct snapshot_wait *w = arg;
	return w->link->facts != NULL || w->link->malformed || now_ns() > w->deadline;
}

/* link_learn_clock asks how the worker's clock runs to ours: when its times first matter, since it costs a round trip. */
int32_t link_learn_clock(struct link *link) {
	uint64_t before = now_ns(), theirs = 0;
	if (atomic_load(&link->clock_known))
		return 0;
	int32_t status = call_clock(link->session, &theirs);
	uint64_t after = now_ns();
	if (status != 0)
		return status;
	/* A worker's clock that reads between ours is ours: no two machines started at the same time. */
	if (theirs < before || theirs > after)
		atomic_store(&link->clock_offset, (int64_t)(before + (after - before) / 2 - theirs));
	atomic_store(&link->clock_known, 1);
	return 0;
}

/* greet says who we are and waits for the snapshot, which comes unasked. */
static int greet(struct link *link) {
	struct snapshot_wait wait = {link, now_ns() + UINT64_C(1000000000) * SNAPSHOT_S};
	if (send_hello(link->session, NULL, PROTOCOL, (uint32_t)getpid()) != 0 || session_wait_until(link->session, snapshot_there, &wait) != 0)
		return 0; /* its end has been told */
	if (!link->facts) {
		session_say("no device: the worker of lease %u %s", link->index, link->malformed ? "is of another version" : "says nothing");
		return 0;
	}
	link->device = device_new_root(link);
	return link->device != NULL;
}

/* The workers of all leases start at the same time; then each is waited for. */
static void open_links(void) {
	const char *path = getenv("OUTBOARD_SOCKET");
	if (!path || !*path) {
		session_say("no device: OUTBOARD_SOCKET is not set; start the program with `outboard run -- PROGRAM`");
		return;
	}
	uint32_t leases = 1, ignored;
	prepare(0, path, &leases);
	if (leases > LINKS)
		leases = LINKS;
	for (uint32_t i = 1; i < leases; i++)
		prepare(i, path, &ignored);
	for (uint32_t i = 0; i < leases || i == 0; i++) {
		struct link *link = link_at(i);
		if (!link->session)
			continue;
		if (greet(link))
			library.links |= link->bit;
		else
			session_close(link->session);
	}
	if (library.links)
		library.platform = platform_new();
}

static void forked(void) {
	if (atomic_load(&library.state) == UNOPENED)
		return;
	atomic_store(&library.state, FORKED);
	for (uint32_t i = 0; i < LINKS; i++)
		if (library.link[i].session)
			session_forked(library.link[i].session);
}

static void open_once(void) {
	pthread_mutex_lock(&library.lock);
	if (atomic_load(&library.state) == UNOPENED) {
		library.first = pthread_self();
		pthread_atfork(NULL, NULL, forked);
		atomic_store(&library.state, OPENING); /* a child that is forked now would wait for the lock for ever */
		open_links();
		atomic_store(&library.state, OPEN);
	}
	pthread_mutex_unlock(&library.lock);
}

/* ---- every call */

static void share(void) {
	struct link *link;
	atomic_store(&library.shared, 1);
	FOR_LINKS(link, library.links)
		session_shared(link->session);
}

int32_t api_enter(void) {
	int state = atomic_load_explicit(&library.state, memory_order_acquire);
	if (__builtin_expect(state != OPEN, 0)) {
		if (state == FORKED)
			return CL_DEVICE_NOT_AVAILABLE;
		open_once();
	}
	if (!atomic_load_explicit(&library.shared, memory_order_relaxed) && !pthread_equal(library.first, pthread_self()))
		share();
	if (__builtin_expect(atomic_load_explicit(&object_dying, memory_order_relaxed) != NULL, 0))
		object_bury();
	return 0;
}

/* ---- the end: exit or dlclose. Threads of the program may be inside calls; they find dead sessions, and their memory. */
__attribute__((destructor)) static void leave(void) {
	if (atomic_load(&library.state) != OPEN)
		return;
	for (uint32_t i = 0; i < LINKS; i++)
		if (library.link[i].session)
			session_close(library.link[i].session);
	helpers_join();
}
