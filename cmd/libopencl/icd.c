/* icd.c: the three functions that a loader asks a driver library for by name (cl_khr_icd). All others are in the table that
 * every object begins with. */
#include "library.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms) {
	return api_dispatch.clGetPlatformIDs(num_entries, platforms, num_platforms);
}

EXPORTED cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform, cl_platform_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	return api_dispatch.clGetPlatformInfo(platform, param_name, param_value_size, param_value, param_value_size_ret);
}

/* By this function alone can an entry point be had before there is a platform. */
EXPORTED void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
	return name ? ob_clGetExtensionFunctionAddress(name) : NULL;
}

void *ob_clGetExtensionFunctionAddress(const char *name) {
	static const struct {
		const char *name;
		void (*entry)(void);
	} own[] = {
		{"clIcdGetPlatformIDsKHR", (void (*)(void))clIcdGetPlatformIDsKHR},
	};
	if (!name)
		return NULL;
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (strcmp(own[i].name, name) == 0)
			return (void *)own[i].entry;
	return NULL;
}

void *ob_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
	(void)platform;
	return ob_clGetExtensionFunctionAddress(name);
}
