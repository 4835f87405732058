/* icd.c: the functions that a loader looks up in a driver library by name (cl_khr_icd). All others
 * are in the dispatch table with which every object begins. Layer: entry. */
#include "callback.h"
#include "calls.h"
#include "entry.h"
#include "library.h"

static struct _cl_icd_dispatch next, recorded;
static const struct _cl_icd_dispatch *dispatch = &api_dispatch;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose_dispatch(void) {
	entry_read_without();
	if (!record_open() && !entry_without)
		return;
	pthread_atfork(NULL, NULL, record_forked);
	next = api_dispatch;
	callback_wrap(&next);
	entry_next = &next;
	recorded = api_dispatch;
	record_overlay(&recorded);
	object_dispatch = dispatch = &recorded;
}

static const struct _cl_icd_dispatch *chosen(void) {
	pthread_once(&once, choose_dispatch);
	return dispatch;
}

EXPORTED cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms) {
	return chosen()->clGetPlatformIDs(num_entries, platforms, num_platforms);
}

EXPORTED cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform, cl_platform_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	return chosen()->clGetPlatformInfo(platform, param_name, param_value_size, param_value, param_value_size_ret);
}

/* Loaders call clGetExtensionFunctionAddress first, before there is a platform: it opens no
 * session. */
EXPORTED void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
	if (name && strcmp(name, "clIcdGetPlatformIDsKHR") == 0)
		return (void *)clIcdGetPlatformIDsKHR;
	return NULL;
}
