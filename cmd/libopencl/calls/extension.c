/* extension.c: entry points that a program looks up by name. Layer: calls. */
#include "calls.h"

void *ob_clGetExtensionFunctionAddress(const char *name) {
	if (name && strcmp(name, "clIcdGetPlatformIDsKHR") == 0)
		return (void *)object_dispatch->clGetPlatformIDs;
	return NULL;
}

void *ob_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
	(void)platform;
	return ob_clGetExtensionFunctionAddress(name);
}
