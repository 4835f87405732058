/* platform.c: the only platform, which has the devices of all leases. Layer: objects. */
#include "library.h"

#include <stdio.h>

/* Extensions that work across a session. Others need functions that are not forwarded. */
static const char platform_forwarded[] = " cl_khr_icd cl_khr_byte_addressable_store cl_khr_global_int32_base_atomics "
	"cl_khr_global_int32_extended_atomics cl_khr_local_int32_base_atomics cl_khr_local_int32_extended_atomics cl_khr_fp16 cl_khr_fp64 "
	"cl_khr_3d_image_writes cl_khr_int64_base_atomics cl_khr_int64_extended_atomics cl_khr_depth_images cl_khr_extended_versioning "
	"cl_khr_image2d_from_buffer cl_khr_subgroups cl_khr_spir cl_khr_priority_hints cl_khr_throttle_hints ";

static int forwarded(const char *name, size_t size) {
	char key[CL_NAME_VERSION_MAX_NAME_SIZE + 2];
	if (size == 0 || size >= CL_NAME_VERSION_MAX_NAME_SIZE)
		return 0;
	snprintf(key, sizeof key, " %.*s ", (int)size, name);
	return strstr(platform_forwarded, key) != NULL;
}

static const char *fact_text(const struct facts *f, cl_platform_info param) {
	int32_t status;
	size_t size;
	const char *text = facts_find(f, OP_clGetPlatformInfo, ID_PLATFORM, 0, 0, param, &status, &size);
	return text && status == 0 && size > 0 && text[size - 1] == 0 ? text : "";
}

static int same_platform(const struct facts *a, const struct facts *b) {
	return strcmp(fact_text(a, CL_PLATFORM_NAME), fact_text(b, CL_PLATFORM_NAME)) == 0 &&
		strcmp(fact_text(a, CL_PLATFORM_VERSION), fact_text(b, CL_PLATFORM_VERSION)) == 0;
}

/* filter keeps the forwarded names of a list, and cl_khr_icd, which loaders require of a
 * platform. */
static void filter(struct facts *f) {
	const char *all = fact_text(f, CL_PLATFORM_EXTENSIONS);
	size_t room = strlen(all) + sizeof " cl_khr_icd";
	char *kept = calloc(1, room + 1);
	if (!kept)
		return;
	size_t n = 0;
	for (size_t k; *all; all += k) {
		all += strspn(all, " ");
		k = strcspn(all, " ");
		if (forwarded(all, k))
			n += (size_t)snprintf(kept + n, room - n, "%s%.*s", n ? " " : "", (int)k, all);
	}
	if (!strstr(kept, "cl_khr_icd"))
		n += (size_t)snprintf(kept + n, room - n, "%scl_khr_icd", n ? " " : "");
	facts_replace(f, OP_clGetPlatformInfo, ID_PLATFORM, CL_PLATFORM_EXTENSIONS, kept, n + 1);
	free(kept);
}

static void filter_versions(struct facts *f) {
	int32_t status;
	size_t size;
	const cl_name_version *all = facts_find(f, OP_clGetPlatformInfo, ID_PLATFORM, 0, 0, CL_PLATFORM_EXTENSIONS_WITH_VERSION, &status, &size);
	size_t count = all && status == 0 ? size / sizeof *all : 0, n = 0;
	cl_name_version *kept = calloc(count + 1, sizeof *kept);
	if (kept && count > 0) {
		for (size_t i = 0; i < count; i++)
			if (forwarded(all[i].name, strnlen(all[i].name, sizeof all[i].name)))
				kept[n++] = all[i];
		facts_replace(f, OP_clGetPlatformInfo, ID_PLATFORM, CL_PLATFORM_EXTENSIONS_WITH_VERSION, kept, n * sizeof *kept);
	}
	free(kept);
}

/* common_facts returns the facts of the platform that all links share, or NULL. */
static struct facts *common_facts(void) {
	struct facts *first = NULL;
	struct link *link;
	FOR_LINKS(link, library.links) {
		if (!first)
			first = link->facts;
		else if (!same_platform(first, link->facts))
			return NULL;
	}
	filter(first);
	filter_versions(first);
	return facts_hold(first);
}

cl_platform_id platform_new(void) {
	cl_platform_id p = object_new_with_id(sizeof *p, KIND_PLATFORM, 0, ID_PLATFORM, NULL);
	if (p)
		p->facts = common_facts();
	return p;
}
