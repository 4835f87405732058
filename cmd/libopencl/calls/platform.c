/* platform.c: queries of the platform. Layer: calls. */
#include "calls.h"

struct text {
	cl_platform_info param;
	const char *value;
};

/* generic contains the answers when the devices belong to different platforms. */
static const struct text generic[] = {
	{CL_PLATFORM_PROFILE, "FULL_PROFILE"},
	{CL_PLATFORM_VERSION, "OpenCL 3.0 Outboard"},
	{CL_PLATFORM_NAME, "Outboard"},
	{CL_PLATFORM_VENDOR, "Outboard"},
	{CL_PLATFORM_EXTENSIONS, "cl_khr_icd"},
	{CL_PLATFORM_ICD_SUFFIX_KHR, "OUTBOARD"},
};

static const char *generic_text(cl_platform_info param) {
	for (size_t i = 0; i < sizeof generic / sizeof *generic; i++)
		if (generic[i].param == param)
			return generic[i].value;
	return NULL;
}

cl_int ob_clGetPlatformIDs(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms) {
	if ((!platforms && !num_platforms) || (platforms && num_entries == 0))
		return CL_INVALID_VALUE;
	if (num_platforms)
		*num_platforms = library.platform ? 1 : 0;
	if (!library.platform)
		return CL_PLATFORM_NOT_FOUND_KHR;
	if (platforms)
		platforms[0] = library.platform;
	return CL_SUCCESS;
}

static cl_int generic_info(cl_platform_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	const char *text = generic_text(param_name);
	if (text)
		return info_answer(text, strlen(text) + 1, param_value_size, param_value, param_value_size_ret);
	switch (param_name) {
	case CL_PLATFORM_HOST_TIMER_RESOLUTION:
		INFO(cl_ulong, 1);
	case CL_PLATFORM_NUMERIC_VERSION:
		INFO(cl_version, CL_MAKE_VERSION(3, 0, 0));
	case CL_PLATFORM_EXTENSIONS_WITH_VERSION:
		INFO(cl_name_version, ((cl_name_version){CL_MAKE_VERSION(1, 0, 0), "cl_khr_icd"}));
	}
	return CL_INVALID_VALUE;
}

cl_int ob_clGetPlatformInfo(cl_platform_id platform, cl_platform_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	if (!platform->facts)
		return generic_info(param_name, param_value_size, param_value, param_value_size_ret);
	int32_t status;
	size_t size;
	const void *value = facts_find(platform->facts, OP_clGetPlatformInfo, ID_PLATFORM, 0, 0, param_name, &status, &size);
	if (!value)
		return CL_INVALID_VALUE;
	return status != 0 ? status : info_answer(value, size, param_value_size, param_value, param_value_size_ret);
}
