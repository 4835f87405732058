/* format.c: image formats: the size of their elements, and the links that support them.
 * Layer: calls. */
#include "calls.h"

static size_t channel_bytes(cl_channel_type type) {
	switch (type) {
	case CL_SNORM_INT8: case CL_UNORM_INT8: case CL_SIGNED_INT8: case CL_UNSIGNED_INT8:
		return 1;
	case CL_SNORM_INT16: case CL_UNORM_INT16: case CL_SIGNED_INT16: case CL_UNSIGNED_INT16: case CL_HALF_FLOAT:
		return 2;
	case CL_SIGNED_INT32: case CL_UNSIGNED_INT32: case CL_FLOAT: case CL_UNORM_INT24:
		return 4;
	default:
		return 0;
	}
}

/* Types whose one value holds all channels. */
static size_t packed_bytes(cl_channel_type type) {
	switch (type) {
	case CL_UNORM_SHORT_565: case CL_UNORM_SHORT_555:
		return 2;
	case CL_UNORM_INT_101010: case CL_UNORM_INT_101010_2:
		return 4;
	default:
		return 0;
	}
}

static size_t channels(cl_channel_order order) {
	switch (order) {
	case CL_R: case CL_A: case CL_Rx: case CL_INTENSITY: case CL_LUMINANCE: case CL_DEPTH:
		return 1;
	case CL_RG: case CL_RA: case CL_RGx:
		return 2;
	case CL_RGB: case CL_sRGB:
		return 3;
	case CL_RGBA: case CL_BGRA: case CL_ARGB: case CL_ABGR: case CL_RGBx: case CL_sRGBA: case CL_sBGRA: case CL_sRGBx:
		return 4;
	default:
		return 0;
	}
}

size_t format_element(const cl_image_format *format) {
	cl_channel_type type = format->image_channel_data_type;
	if (format->image_channel_order == CL_DEPTH_STENCIL) /* with float the stencil occupies a word of its own */
		return type == CL_UNORM_INT24 ? 4 : type == CL_FLOAT ? 8 : 0;
	size_t packed = packed_bytes(type), n = channels(format->image_channel_order);
	return packed && n ? packed : n * channel_bytes(type);
}

/* The cache is one allocation, freed with the context's blob: for each query a head, followed by
 * the formats. */
struct formats {
	uint64_t flags;
	uint32_t type, link, count, pad;
};

static const struct formats *cache_find(cl_context context, const struct formats *key) {
	for (size_t at = 0; at < context->formats.size;) {
		const struct formats *f = (const void *)(context->formats.data + at);
		if (f->flags == key->flags && f->type == key->type && f->link == key->link)
			return f;
		at += sizeof *f + f->count * sizeof(cl_image_format);
	}
	return NULL;
}

static int cache_add(cl_context context, struct formats *key, const struct blob *value) {
	size_t n = value->size / sizeof(cl_image_format) * sizeof(cl_image_format), old = context->formats.size;
	unsigned char *data = realloc(context->formats.data, old + sizeof *key + n);
	if (!data)
		return 0;
	key->count = (uint32_t)(n / sizeof(cl_image_format));
	memcpy(data + old, key, sizeof *key);
	if (n)
		memcpy(data + old + sizeof *key, value->data, n);
	context->formats = (struct blob){data, old + sizeof *key + n};
	return 1;
}

/* Returns the formats of a link, queried once. The context's lock is held when it returns 0. */
static int32_t formats_of(cl_context context, struct link *link, uint64_t flags, cl_mem_object_type type, const struct formats **found) {
	struct formats key = {.flags = flags, .type = type, .link = link->index};
	pthread_mutex_lock(&context->lock);
	*found = cache_find(context, &key);
	if (*found)
		return 0;
	pthread_mutex_unlock(&context->lock);
	struct blob value = {0};
	int32_t status = call_clGetSupportedImageFormats(link->session, context->o.id, flags, type, &value);
	if (status != 0) {
		free(value.data);
		return status;
	}
	pthread_mutex_lock(&context->lock);
	*found = cache_find(context, &key); /* another thread may have added it */
	int added = *found || cache_add(context, &key, &value);
	free(value.data);
	if (!*found && added)
		*found = cache_find(context, &key);
	if (!added)
		pthread_mutex_unlock(&context->lock);
	return added ? 0 : CL_OUT_OF_HOST_MEMORY;
}

static const cl_image_format *formats_list(const struct formats *f) { return (const void *)(f + 1); }

static int list_has(const cl_image_format *list, size_t count, const cl_image_format *format) {
	for (size_t i = 0; i < count; i++)
		if (list[i].image_channel_order == format->image_channel_order && list[i].image_channel_data_type == format->image_channel_data_type)
			return 1;
	return 0;
}

int32_t format_links(cl_context context, cl_mem_flags flags, cl_mem_object_type type, const cl_image_format *format, uint64_t *links) {
	struct link *link;
	int32_t status = 0;
	*links = 0;
	FOR_LINKS(link, context->o.links) {
		const struct formats *f;
		int32_t failed = formats_of(context, link, mem_wire_flags(flags), type, &f);
		status = failed ? failed : status;
		if (failed)
			continue;
		if (list_has(formats_list(f), f->count, format))
			*links |= link->bit;
		pthread_mutex_unlock(&context->lock);
	}
	return *links ? 0 : status;
}

/* Adds a link's formats to those that any link supports, each once. */
static int32_t union_add(struct blob *all, cl_context context, struct link *link, uint64_t flags, cl_mem_object_type type) {
	const struct formats *f;
	int32_t status = formats_of(context, link, flags, type, &f);
	if (status != 0)
		return status;
	cl_image_format *list = realloc(all->data, all->size + f->count * sizeof *list + 1);
	size_t n = all->size / sizeof *list;
	for (uint32_t i = 0; list && i < f->count; i++)
		if (!list_has(list, n, &formats_list(f)[i]))
			list[n++] = formats_list(f)[i];
	pthread_mutex_unlock(&context->lock);
	if (!list)
		return CL_OUT_OF_HOST_MEMORY;
	*all = (struct blob){(void *)list, n * sizeof *list};
	return 0;
}

static int known_type(cl_mem_object_type type) {
	return type >= CL_MEM_OBJECT_IMAGE2D && type <= CL_MEM_OBJECT_IMAGE1D_BUFFER;
}

cl_int ob_clGetSupportedImageFormats(cl_context context, cl_mem_flags flags, cl_mem_object_type type, cl_uint num_entries, cl_image_format *formats, cl_uint *num_formats) {
	int32_t status = mem_check_flags(flags);
	if (status != 0 || !known_type(type) || (num_entries == 0 && formats))
		return CL_INVALID_VALUE;
	struct blob all = {0};
	struct link *link;
	FOR_LINKS(link, context->o.links)
		if (status == 0)
			status = union_add(&all, context, link, mem_wire_flags(flags), type);
	cl_uint n = (cl_uint)(all.size / sizeof *formats);
	if (status == 0 && formats && n)
		memcpy(formats, all.data, (num_entries < n ? num_entries : n) * sizeof *formats);
	if (status == 0 && num_formats)
		*num_formats = n;
	free(all.data);
	return status;
}
