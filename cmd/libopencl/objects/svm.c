/* svm.c: which of the program's addresses are shared virtual memory. Layer: objects. */
#include "svm.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAGE = 4096, LOWEST = 65536, ADDRESS_BITS = 47 };

/* Allocations by ascending address; they do not overlap. The list holds each. */
static struct {
	pthread_mutex_t lock;
	cl_mem *all;
	size_t count, room;
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- placement */

/* The main thread's stack grows down to its limit, at most a GiB here: a mapping in its way would
 * end the program later. */
static int in_stack(uint64_t start, uint64_t end) {
	uint64_t top = getauxval(AT_RANDOM), room = (uint64_t)1 << 30;
	struct rlimit limit;
	if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < room)
		room = limit.rlim_cur;
	return top > room && end > top - room - LOWEST && start < top + LOWEST;
}

/* Computes the pages of size bytes at the address. Returns 0 for an address that no worker may
 * choose. */
static int pages_of(uint64_t address, size_t size, uint64_t *start, uint64_t *end) {
	static const uint64_t most = (uint64_t)1 << ADDRESS_BITS;
	if (address < LOWEST || address >= most || size > most - address)
		return 0;
	*start = address & ~(uint64_t)(PAGE - 1);
	*end = (address + size + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	return !in_stack(*start, *end);
}

/* Kernels before 4.17 treat the address as a hint. */
static void *reserve(uint64_t start, uint64_t end) {
	void *wanted = (void *)(uintptr_t)start;
	void *p = mmap(wanted, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (p == wanted)
		return p;
	if (p != MAP_FAILED)
		munmap(p, end - start);
	return NULL;
}

void svm_unplace(cl_mem m) {
	if (m->svm_pages)
		munmap(m->svm_pages, m->svm_span);
	m->svm_pages = NULL;
}

/* ---- the list */

static unsigned char *base_of(cl_mem m) { return m->host_ptr; }

/* Returns the number of allocations that begin at p or below. */
static size_t count_up_to(const unsigned char *p) {
	size_t low = 0, high = list.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (base_of(list.all[middle]) <= p)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int add(cl_mem m) {
	if (list.count == list.room) {
		size_t room = list.room ? 2 * list.room : 16;
		cl_mem *all = realloc(list.all, room * sizeof *all);
		if (!all)
			return 0;
		list.all = all;
		list.room = room;
	}
	size_t at = count_up_to(base_of(m));
	memmove(list.all + at + 1, list.all + at, (list.count - at) * sizeof *list.all);
	list.all[at] = m;
	list.count++;
	return 1;
}

int svm_place(cl_mem m, uint64_t address) {
	uint64_t start, end;
	if (!pages_of(address, m->size, &start, &end) || !(m->svm_pages = reserve(start, end)))
		return 0;
	m->svm_span = end - start;
	m->host_ptr = (void *)(uintptr_t)address;
	pthread_mutex_lock(&list.lock);
	int ok = add(m);
	pthread_mutex_unlock(&list.lock);
	return ok;
}

cl_mem svm_find(cl_context context, const void *p, size_t size, size_t *offset) {
	pthread_mutex_lock(&list.lock);
	size_t n = count_up_to(p);
	cl_mem m = n ? list.all[n - 1] : NULL;
	*offset = m ? (size_t)((const unsigned char *)p - base_of(m)) : 0;
	if (m && (m->context != context || *offset > m->size || size > m->size - *offset))
		m = NULL;
	if (m)
		object_hold(m);
	pthread_mutex_unlock(&list.lock);
	return m;
}

cl_mem svm_remove(cl_context context, const void *p) {
	pthread_mutex_lock(&list.lock);
	size_t n = count_up_to(p);
	cl_mem m = n ? list.all[n - 1] : NULL;
	if (m && (m->context != context || base_of(m) != p))
		m = NULL;
	if (m) {
		memmove(list.all + n - 1, list.all + n, (list.count - n) * sizeof *list.all);
		list.count--;
	}
	pthread_mutex_unlock(&list.lock);
	return m;
}
