/* library.c: the lifetime of the library: the first call opens a session for each lease, exit or
 * dlclose closes them. Layer: objects. */
#include "library.h"
#include "record.h"
#include "program.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { PROTOCOL = 1, SNAPSHOT_S = 60 };

static struct session *open_session(struct link *link, const char *path, uint32_t *leases) {
	struct session_options options = {
		.socket = path,
		.lease = link->index,
		.dead_status = CL_DEVICE_NOT_AVAILABLE,
		.memory_status = CL_OUT_OF_HOST_MEMORY,
		.data_op = OP_data,
		.notice = notice_receive,
		.died = notice_died,
		.listener = callback_run_all,
		.user = link,
	};
	char why[4200];
	struct session *s = session_open(&options, leases, &link->memory_limit, why, sizeof why);
	if (!s)
		session_log("no device: %s", why);
	return s;
}

static void open_link(uint32_t index, const char *path, uint32_t *leases) {
	struct link *link = link_at(index);
	link->index = index;
	link->bit = UINT64_C(1) << index;
	link->session = open_session(link, path, leases);
}

struct snapshot_wait {
	struct link *link;
	uint64_t deadline;
};

static int snapshot_arrived(void *arg) {
	struct snapshot_wait *w = arg;
	return w->link->facts != NULL || w->link->malformed || clock_ns() > w->deadline;
}

/* exchange_hello sends hello and waits for the snapshot, which the worker sends first. */
static int exchange_hello(struct link *link) {
	struct snapshot_wait wait = {link, clock_ns() + UINT64_C(1000000000) * SNAPSHOT_S};
	if (send_hello(link->session, NULL, PROTOCOL, (uint32_t)getpid()) != 0 || session_wait_until(link->session, snapshot_arrived, &wait) != 0)
		return 0; /* the session's end has been logged */
	if (!link->facts) {
		session_log("no device: the worker of lease %u %s", link->index, link->malformed ? "is of another version" : "says nothing");
		return 0;
	}
	link->device = device_new_root(link);
	return link->device != NULL;
}

/* The workers of all leases start in parallel; then the library waits for each. */
static void open_links(void) {
	const char *path = getenv("OUTBOARD_SOCKET");
	if (!path || !*path) {
		session_log("no device: OUTBOARD_SOCKET is not set; start the program with `outboard run -- PROGRAM`");
		return;
	}
	uint32_t leases = 1, ignored;
	open_link(0, path, &leases);
	if (leases > LINKS)
		leases = LINKS;
	for (uint32_t i = 1; i < leases; i++)
		open_link(i, path, &ignored);
	for (uint32_t i = 0; i < leases || i == 0; i++) {
		struct link *link = link_at(i);
		if (!link->session)
			continue;
		if (exchange_hello(link)) {
			library.links |= link->bit;
			link_record(link);
		} else {
			session_close(link->session);
		}
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

static void open_once(const struct _cl_icd_dispatch *table) {
	pthread_mutex_lock(&library.lock);
	if (atomic_load(&library.state) == UNOPENED) {
		library.first = pthread_self();
		if (!object_dispatch) /* otherwise that of recorded calls */
			object_dispatch = table;
		pthread_atfork(NULL, NULL, forked);
		atomic_store(&library.state, OPENING); /* a child forked now would wait for the lock for ever */
		open_links();
		atomic_store(&library.state, OPEN);
	}
	pthread_mutex_unlock(&library.lock);
}

int32_t library_enter(const struct _cl_icd_dispatch *table) {
	int state = atomic_load_explicit(&library.state, memory_order_acquire);
	if (__builtin_expect(state != OPEN, 0)) {
		if (state == FORKED)
			return CL_DEVICE_NOT_AVAILABLE;
		open_once(table);
	}
	if (!atomic_load_explicit(&library.shared, memory_order_relaxed) && !pthread_equal(library.first, pthread_self()))
		links_share();
	if (__builtin_expect(atomic_load_explicit(&object_reap_list, memory_order_relaxed) != NULL, 0))
		object_reap();
	return 0;
}

/* Runs at exit or dlclose. Threads of the program may be inside calls: they find dead sessions in
 * valid memory. */
__attribute__((destructor)) static void close_all(void) {
	if (atomic_load(&library.state) != OPEN)
		return;
	struct link *link;
	FOR_LINKS(link, library.links)
		link_record_end(link);
	record_close();
	for (uint32_t i = 0; i < LINKS; i++)
		if (library.link[i].session)
			session_close(library.link[i].session);
	helpers_join();
}
