/* image.c: images of every type, also in a buffer's or another image's storage, and the two
 * functions of OpenCL 1.0. Layer: calls. */
#include "calls.h"

#define MAX_IMAGE ((size_t)1 << 46) /* bytes */

/* An image to be created, with its pitches filled in. */
struct plan {
	cl_context context;
	cl_mem_flags flags;
	cl_image_format format;
	cl_image_desc desc;
	void *host_ptr;
	size_t extent[3], element, row_pitch, slice_pitch;
	uint64_t links;
};

int image_sliced(cl_mem_object_type type) {
	return type == CL_MEM_OBJECT_IMAGE3D || type == CL_MEM_OBJECT_IMAGE2D_ARRAY || type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
}

/* Computes the bounds in the order of origins and regions; ignores sizes that the type does not
 * have. Returns 0 for an unknown type. */
static int extents(const cl_image_desc *d, size_t *e) {
	e[0] = d->image_width;
	e[1] = e[2] = 1;
	switch (d->image_type) {
	case CL_MEM_OBJECT_IMAGE1D: case CL_MEM_OBJECT_IMAGE1D_BUFFER:
		return 1;
	case CL_MEM_OBJECT_IMAGE1D_ARRAY:
		e[1] = d->image_array_size;
		return 1;
	case CL_MEM_OBJECT_IMAGE2D:
		e[1] = d->image_height;
		return 1;
	case CL_MEM_OBJECT_IMAGE2D_ARRAY:
		e[1] = d->image_height;
		e[2] = d->image_array_size;
		return 1;
	case CL_MEM_OBJECT_IMAGE3D:
		e[1] = d->image_height;
		e[2] = d->image_depth;
		return 1;
	default:
		return 0;
	}
}

struct layout image_layout(cl_mem m, const void *base, const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch) {
	size_t row = region[0] * m->image.element;
	size_t y = row_pitch ? row_pitch : row, z = slice_pitch;
	int layered = m->type == CL_MEM_OBJECT_IMAGE1D_ARRAY; /* its second dimension counts images, not rows */
	if (z == 0)
		z = layered ? y : y * region[1];
	if (layered)
		y = z;
	unsigned char *at = (unsigned char *)base;
	if (origin)
		at += origin[0] * m->image.element + origin[1] * y + origin[2] * z;
	return (struct layout){at, row, region[1], y, region[2], z};
}

int32_t image_region(cl_mem m, const size_t *origin, const size_t *region) {
	if (!origin || !region)
		return CL_INVALID_VALUE;
	for (int i = 0; i < 3; i++)
		if (region[i] == 0 || origin[i] >= m->image.extent[i] || region[i] > m->image.extent[i] - origin[i])
			return CL_INVALID_VALUE;
	return 0;
}

static int device_takes(cl_device_id device, const struct plan *p) {
	const cl_image_desc *d = &p->desc;
	if (!device_bool(device, CL_DEVICE_IMAGE_SUPPORT))
		return 0;
	if (image_sliced(d->image_type) && d->image_type != CL_MEM_OBJECT_IMAGE3D
	    && d->image_array_size > device_number(device, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE))
		return 0;
	switch (d->image_type) {
	case CL_MEM_OBJECT_IMAGE1D_BUFFER:
		return p->extent[0] <= device_number(device, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE);
	case CL_MEM_OBJECT_IMAGE3D:
		return p->extent[0] <= device_number(device, CL_DEVICE_IMAGE3D_MAX_WIDTH) && p->extent[1] <= device_number(device, CL_DEVICE_IMAGE3D_MAX_HEIGHT)
			&& p->extent[2] <= device_number(device, CL_DEVICE_IMAGE3D_MAX_DEPTH);
	case CL_MEM_OBJECT_IMAGE2D: case CL_MEM_OBJECT_IMAGE2D_ARRAY:
		if (p->extent[1] > device_number(device, CL_DEVICE_IMAGE2D_MAX_HEIGHT))
			return 0;
		/* fall through */
	default:
		return p->extent[0] <= device_number(device, CL_DEVICE_IMAGE2D_MAX_WIDTH);
	}
}

/* Finds the links whose devices accept the size; returns an error when there are none. */
static int32_t plan_links(struct plan *p) {
	for (cl_uint i = 0; i < p->context->device_count; i++)
		if (device_takes(p->context->devices[i], p))
			p->links |= p->context->devices[i]->link->bit;
	return p->links ? 0 : CL_INVALID_IMAGE_SIZE;
}

static int pitch_fits(size_t pitch, size_t least, size_t unit) { return pitch == 0 || (pitch >= least && pitch % unit == 0); }

/* Pitches describe the program's memory, so without a host pointer they must be 0, except in a
 * buffer's storage. */
static int32_t plan_pitches(struct plan *p, int own) {
	cl_image_desc *d = &p->desc;
	size_t row = p->extent[0] * p->element;
	int one_row = d->image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
	if (own && !p->host_ptr && (d->image_row_pitch || d->image_slice_pitch))
		return CL_INVALID_IMAGE_DESCRIPTOR;
	if (!pitch_fits(d->image_row_pitch, row, p->element))
		return CL_INVALID_IMAGE_DESCRIPTOR;
	p->row_pitch = d->image_row_pitch ? d->image_row_pitch : row;
	size_t slice = one_row ? p->row_pitch : p->row_pitch * p->extent[1];
	if (!image_sliced(d->image_type)) {
		p->slice_pitch = 0;
		return 0;
	}
	if (!pitch_fits(d->image_slice_pitch, slice, p->row_pitch))
		return CL_INVALID_IMAGE_DESCRIPTOR;
	p->slice_pitch = d->image_slice_pitch ? d->image_slice_pitch : slice;
	return 0;
}

static int32_t check_of_buffer(struct plan *p, cl_mem buffer) {
	if (p->desc.image_type == CL_MEM_OBJECT_IMAGE2D) {
		uint64_t pixels = context_most(p->context, CL_DEVICE_IMAGE_PITCH_ALIGNMENT);
		size_t bytes;
		if (pixels == 0)
			return CL_INVALID_OPERATION;
		if (__builtin_mul_overflow(pixels, p->element, &bytes) || p->row_pitch % bytes != 0)
			return CL_INVALID_IMAGE_DESCRIPTOR;
	}
	return p->row_pitch <= buffer->size / p->extent[1] ? 0 : CL_INVALID_IMAGE_DESCRIPTOR;
}

/* A view of another image may differ only in the order of its channels. */
static int32_t check_of_image(struct plan *p, cl_mem image) {
	if (image->type != CL_MEM_OBJECT_IMAGE2D || p->desc.image_type != CL_MEM_OBJECT_IMAGE2D)
		return CL_INVALID_IMAGE_DESCRIPTOR;
	if (p->extent[0] != image->image.width || p->extent[1] != image->image.height)
		return CL_INVALID_IMAGE_DESCRIPTOR;
	if (p->format.image_channel_data_type != image->image.format.image_channel_data_type || p->element != image->image.element)
		return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
	p->row_pitch = image->image.row_pitch;
	return 0;
}

static int32_t check_parent(struct plan *p) {
	cl_mem parent = p->desc.mem_object;
	int line = p->desc.image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER, plane = p->desc.image_type == CL_MEM_OBJECT_IMAGE2D;
	if (!parent)
		return line ? CL_INVALID_IMAGE_DESCRIPTOR : 0;
	if (!(line || plane) || !api_valid(parent, KIND_MEM) || mem_is_pipe(parent) || (line && !mem_is_buffer(parent)))
		return CL_INVALID_IMAGE_DESCRIPTOR;
	if (parent->context != p->context)
		return CL_INVALID_CONTEXT;
	int32_t status = mem_check_part_flags(parent, p->flags);
	if (status == 0)
		status = mem_is_buffer(parent) ? check_of_buffer(p, parent) : check_of_image(p, parent);
	p->links &= parent->o.links;
	return status;
}

static int32_t check_format(struct plan *p) {
	uint64_t links;
	int32_t status = format_links(p->context, p->flags, p->desc.image_type, &p->format, &links);
	p->links &= links;
	if (status == 0 && p->links == 0)
		status = CL_IMAGE_FORMAT_NOT_SUPPORTED;
	return status;
}

static int32_t check_descriptor(struct plan *p) {
	if (!extents(&p->desc, p->extent) || p->desc.num_mip_levels || p->desc.num_samples)
		return CL_INVALID_IMAGE_DESCRIPTOR;
	if (!p->extent[0] || !p->extent[1] || !p->extent[2])
		return CL_INVALID_IMAGE_DESCRIPTOR;
	return 0;
}

/* The worker checks the limits on the sizes: here only the bytes are bounded, so that no product of
 * sizes and pitches overflows. */
static int32_t check_bytes(const struct plan *p) {
	size_t n = p->element;
	for (int i = 0; i < 3; i++)
		if (__builtin_mul_overflow(n, p->extent[i], &n))
			return CL_INVALID_IMAGE_SIZE;
	size_t row = p->desc.image_row_pitch, slice = p->desc.image_slice_pitch, all;
	if (n > MAX_IMAGE || __builtin_mul_overflow(row, p->extent[1], &all) || all > MAX_IMAGE || __builtin_mul_overflow(all, p->extent[2], &all) ||
	    all > MAX_IMAGE || __builtin_mul_overflow(slice, p->extent[1] > p->extent[2] ? p->extent[1] : p->extent[2], &all) || all > MAX_IMAGE)
		return CL_INVALID_IMAGE_SIZE;
	return 0;
}

static int32_t check_image_new(struct plan *p) {
	int32_t status = check_descriptor(p);
	if (status == 0 && !context_has(p->context, CL_DEVICE_IMAGE_SUPPORT))
		status = CL_INVALID_OPERATION;
	if (status == 0)
		status = plan_links(p);
	if (status == 0)
		status = check_bytes(p);
	if (status == 0)
		status = mem_check_host_ptr(p->flags, p->host_ptr);
	if (status == 0)
		status = plan_pitches(p, p->desc.mem_object == NULL);
	if (status == 0)
		status = check_parent(p);
	return status ? status : check_format(p);
}

static size_t plan_size(const struct plan *p) {
	if (p->desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
		return p->slice_pitch * p->extent[1];
	return p->slice_pitch ? p->slice_pitch * p->extent[2] : p->row_pitch * p->extent[1];
}

static void image_facts(cl_mem m, const struct plan *p) {
	cl_mem_object_type t = m->type;
	struct image *i = &m->image;
	i->format = p->format;
	i->element = p->element;
	i->width = p->extent[0];
	i->height = t == CL_MEM_OBJECT_IMAGE2D || t == CL_MEM_OBJECT_IMAGE2D_ARRAY || t == CL_MEM_OBJECT_IMAGE3D ? p->extent[1] : 0;
	i->depth = t == CL_MEM_OBJECT_IMAGE3D ? p->extent[2] : 0;
	i->layers = t == CL_MEM_OBJECT_IMAGE1D_ARRAY ? p->extent[1] : t == CL_MEM_OBJECT_IMAGE2D_ARRAY ? p->extent[2] : 0;
	memcpy(i->extent, p->extent, sizeof i->extent);
	i->row_pitch = p->row_pitch;
	i->slice_pitch = p->slice_pitch;
	/* Contents that were copied from the program's memory do not keep its pitches. */
	int keep = m->host_ptr || (m->parent && mem_is_buffer(m->parent));
	i->shadow_row = keep ? p->row_pitch : p->extent[0] * p->element;
	i->shadow_slice = keep && p->slice_pitch ? p->slice_pitch : i->shadow_row * (t == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 1 : p->extent[1]);
}

/* Returns the descriptor on the wire: only the type's own sizes, and no pitch except that of rows
 * in a buffer. */
static cl_image_desc wire_desc(cl_mem m) {
	cl_image_desc d;
	memset(&d, 0, sizeof d);
	d.image_type = m->type;
	d.image_width = m->image.width;
	d.image_height = m->image.height;
	d.image_depth = m->image.depth;
	d.image_array_size = m->image.layers;
	if (m->type == CL_MEM_OBJECT_IMAGE2D && m->parent && mem_is_buffer(m->parent))
		d.image_row_pitch = m->image.row_pitch;
	return d;
}

static void image_send(cl_mem m, const struct plan *p, struct creation *creation) {
	cl_image_desc desc = wire_desc(m);
	struct layout bulk = layout_coalesce(image_layout(m, p->host_ptr, NULL, m->image.extent, p->row_pitch, p->slice_pitch));
	struct link *link;
	FOR_LINKS(link, m->o.links)
		creation_note(creation, send_clCreateImage(link->session, NULL, api_id(m->context), mem_wire_flags(m->flags), &m->image.format,
			sizeof m->image.format, &desc, sizeof desc, api_id(m->parent), NULL, 0, m->o.id, p->host_ptr ? &bulk : NULL));
}

static cl_mem plan_new(const struct plan *p, int32_t *status) {
	cl_mem parent = p->desc.mem_object;
	if (parent)
		return mem_new_part(parent, p->desc.image_type, p->flags, 0, plan_size(p), p->links, status);
	uint64_t bytes = p->extent[0] * p->extent[1] * p->extent[2] * p->element;
	return mem_new_root(p->context, p->desc.image_type, p->flags, plan_size(p), bytes, p->links, status);
}

static cl_mem image_new(struct plan *p, const cl_mem_properties *properties, cl_int *errcode_ret) {
	int32_t status;
	cl_mem m = plan_new(p, &status);
	if (!m)
		return mem_fail(status, errcode_ret);
	if (p->flags & CL_MEM_USE_HOST_PTR)
		m->host_ptr = p->host_ptr;
	image_facts(m, p);
	mem_created_shadow(m, p->host_ptr);
	struct creation creation = {0, CL_OUT_OF_HOST_MEMORY};
	if (mem_keep_properties(m, properties))
		image_send(m, p, &creation);
	return mem_created(m, &creation, errcode_ret);
}

cl_mem ob_clCreateImageWithProperties(cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, const cl_image_format *format, const cl_image_desc *desc, void *host_ptr, cl_int *errcode_ret) {
	int32_t status = mem_check_properties(properties);
	if (status == 0)
		status = mem_check_flags(flags);
	size_t element = format ? format_element(format) : 0;
	if (status == 0 && element == 0)
		status = CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
	if (status == 0 && !desc)
		status = CL_INVALID_IMAGE_DESCRIPTOR;
	if (status != 0)
		return mem_fail(status, errcode_ret);
	struct plan p = {.context = context, .flags = flags, .format = *format, .desc = *desc, .host_ptr = host_ptr, .element = element};
	status = check_image_new(&p);
	return status ? mem_fail(status, errcode_ret) : image_new(&p, properties, errcode_ret);
}

cl_mem ob_clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format *format, const cl_image_desc *desc, void *host_ptr, cl_int *errcode_ret) {
	return ob_clCreateImageWithProperties(context, NULL, flags, format, desc, host_ptr, errcode_ret);
}

/* The functions of OpenCL 1.0 report every wrong size or pitch as CL_INVALID_IMAGE_SIZE. */
static cl_mem old_image(cl_context context, cl_mem_flags flags, const cl_image_format *format, const cl_image_desc *desc, void *host_ptr, cl_int *errcode_ret) {
	cl_int status = CL_SUCCESS;
	cl_mem m = ob_clCreateImageWithProperties(context, NULL, flags, format, desc, host_ptr, &status);
	if (errcode_ret)
		*errcode_ret = status == CL_INVALID_IMAGE_DESCRIPTOR ? CL_INVALID_IMAGE_SIZE : status;
	return m;
}

cl_mem ob_clCreateImage2D(cl_context context, cl_mem_flags flags, const cl_image_format *format, size_t width, size_t height, size_t row_pitch, void *host_ptr, cl_int *errcode_ret) {
	cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = width, .image_height = height, .image_row_pitch = row_pitch};
	return old_image(context, flags, format, &d, host_ptr, errcode_ret);
}

cl_mem ob_clCreateImage3D(cl_context context, cl_mem_flags flags, const cl_image_format *format, size_t width, size_t height, size_t depth, size_t row_pitch, size_t slice_pitch, void *host_ptr, cl_int *errcode_ret) {
	cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = width, .image_height = height, .image_depth = depth,
		.image_row_pitch = row_pitch, .image_slice_pitch = slice_pitch};
	return old_image(context, flags, format, &d, host_ptr, errcode_ret);
}
