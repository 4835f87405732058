/* loaders.c: the OpenCL loaders of the process, in a layer. Layer: entry.
 *
 * A process may have several loaders: PyOpenCL's packages contain one, and other libraries use the
 * system's. A loader loads its layers when it is asked for platforms. A library that is given the
 * context of another one never asks, so its loader would pass its calls to the driver directly, and
 * they would not be recorded. */
#include "loaders.h"

#include "entry.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };

struct names {
	int count;
	char *name[MOST];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct names known; /* loaders that have loaded this layer, or that were asked to */

static int contains(const struct names *all, const char *name) {
	for (int i = 0; i < all->count; i++)
		if (strcmp(all->name[i], name) == 0)
			return 1;
	return 0;
}

/* Returns 1 if the name was added. */
static int add(struct names *all, const char *name) {
	char *copy = all->count == MOST || contains(all, name) ? NULL : strdup(name);
	if (copy)
		all->name[all->count++] = copy;
	return copy != NULL;
}

void loaders_add(const void *address) {
	Dl_info info;
	if (!dladdr(address, &info) || !info.dli_fname)
		return;
	pthread_mutex_lock(&lock);
	(void)add(&known, info.dli_fname);
	pthread_mutex_unlock(&lock);
}

static int collect(struct dl_phdr_info *info, size_t size, void *arg) {
	static const char prefix[] = "libOpenCL";
	const char *slash = strrchr(info->dlpi_name, '/');
	if (slash && strncmp(slash + 1, prefix, sizeof prefix - 1) == 0)
		(void)add(arg, info->dlpi_name);
	return (void)size, 0;
}

/* The loader is never unloaded: the layer's next table is that of the loader that came last. */
static void initialise(const char *name) {
	cl_int(CL_API_CALL * list)(cl_uint, cl_platform_id *, cl_uint *);
	cl_uint count;
	void *loader = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
	*(void **)&list = loader ? dlsym(loader, "clGetPlatformIDs") : NULL;
	if (list)
		(void)list(0, NULL, &count);
}

void loaders_initialise(void) {
	struct names found = {0};
	(void)dl_iterate_phdr(collect, &found);
	for (int i = 0; i < found.count; i++) {
		pthread_mutex_lock(&lock);
		int fresh = add(&known, found.name[i]);
		pthread_mutex_unlock(&lock);
		if (fresh)
			initialise(found.name[i]);
		free(found.name[i]);
	}
}
