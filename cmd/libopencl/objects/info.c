/* info.c: the OpenCL rules for query answers, and copies of bytes. Layer: objects. */
#include "library.h"

int32_t info_answer(const void *value, size_t size, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	if (param_value && param_value_size < size)
		return CL_INVALID_VALUE;
	if (param_value && size > 0)
		memcpy(param_value, value, size);
	if (param_value_size_ret)
		*param_value_size_ret = size;
	return CL_SUCCESS;
}

/* blob_copy returns 0 when there is no memory. */
int blob_copy(struct blob *b, const void *data, size_t size) {
	b->size = size;
	b->data = size ? malloc(size) : NULL;
	if (size && !b->data)
		return 0;
	if (size)
		memcpy(b->data, data, size);
	return 1;
}
