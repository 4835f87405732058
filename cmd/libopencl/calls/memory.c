/* memory.c: retains, releases and queries of memory objects and images. Layer: calls. */
#include "calls.h"

cl_int ob_clRetainMemObject(cl_mem m) { return object_retain(m); }

cl_int ob_clReleaseMemObject(cl_mem m) { return object_release(m); }

cl_int ob_clSetMemObjectDestructorCallback(cl_mem m, PFN_clSetMemObjectDestructorCallback notify, void *user_data) {
	if (!notify)
		return CL_INVALID_VALUE;
	struct destructor *d = malloc(sizeof *d);
	if (!d)
		return CL_OUT_OF_HOST_MEMORY;
	/* The cast goes through void (*)(void): both types take two object pointers. */
	d->call = (void (*)(void *, void *))(void (*)(void))notify;
	d->user_data = user_data;
	pthread_mutex_lock(&m->lock);
	d->next = m->destructors;
	m->destructors = d;
	pthread_mutex_unlock(&m->lock);
	return CL_SUCCESS;
}

/* Maps are counted at the root, as in drivers. */
static cl_uint map_count(cl_mem m) { return m == m->root || mem_over_svm(m) ? atomic_load(&m->root->map_count) : 0; }

static size_t offset_in_parent(cl_mem m) { return m->parent && !mem_over_svm(m) ? m->offset - m->parent->offset : 0; }

cl_int ob_clGetMemObjectInfo(cl_mem m, cl_mem_info name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	switch (name) {
	case CL_MEM_TYPE:
		INFO(cl_mem_object_type, m->type);
	case CL_MEM_FLAGS:
		INFO(cl_mem_flags, m->flags);
	case CL_MEM_SIZE:
		INFO(size_t, m->size);
	case CL_MEM_HOST_PTR:
		INFO(void *, m->host_ptr);
	case CL_MEM_MAP_COUNT:
		INFO(cl_uint, map_count(m));
	case CL_MEM_REFERENCE_COUNT: /* a part references its parent */
		INFO(cl_uint, atomic_load(&m->o.refs) + atomic_load(&m->children));
	case CL_MEM_CONTEXT:
		INFO(cl_context, m->context);
	case CL_MEM_ASSOCIATED_MEMOBJECT:
		INFO(cl_mem, mem_over_svm(m) ? NULL : m->parent);
	case CL_MEM_OFFSET:
		INFO(size_t, offset_in_parent(m));
	case CL_MEM_USES_SVM_POINTER:
		INFO(cl_bool, m->root->svm ? CL_TRUE : CL_FALSE);
	case CL_MEM_PROPERTIES:
		return info_answer(m->properties.data, m->properties.size, param_value_size, param_value, param_value_size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int ob_clGetImageInfo(cl_mem m, cl_image_info name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	const struct image *i = &m->image;
	if (!mem_is_image(m))
		return CL_INVALID_MEM_OBJECT;
	switch (name) {
	case CL_IMAGE_FORMAT:
		INFO(cl_image_format, i->format);
	case CL_IMAGE_ELEMENT_SIZE:
		INFO(size_t, i->element);
	case CL_IMAGE_ROW_PITCH:
		INFO(size_t, i->row_pitch);
	case CL_IMAGE_SLICE_PITCH:
		INFO(size_t, i->slice_pitch);
	case CL_IMAGE_WIDTH:
		INFO(size_t, i->width);
	case CL_IMAGE_HEIGHT:
		INFO(size_t, i->height);
	case CL_IMAGE_DEPTH:
		INFO(size_t, i->depth);
	case CL_IMAGE_ARRAY_SIZE:
		INFO(size_t, i->layers);
	case CL_IMAGE_BUFFER:
		INFO(cl_mem, m->parent);
	case CL_IMAGE_NUM_MIP_LEVELS: case CL_IMAGE_NUM_SAMPLES: /* neither is forwarded */
		INFO(cl_uint, 0);
	default:
		return CL_INVALID_VALUE;
	}
}
