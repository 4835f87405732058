/* check.c: checks the arguments of copies and fills, and the arguments that they share with
 * transfers and maps. Layer: calls.
 *
 * A forwarded command returns before its driver has received it, so every error that the
 * specification assigns to the call is detected here. When several errors apply, the one that the
 * specification lists first for the function is returned
 * (internal/accel/opencl/cltest/c/order.c). */
#include "calls.h"

int32_t check_buffer(cl_command_queue queue, cl_mem m) {
	if (!mem_is_buffer(m))
		return CL_INVALID_MEM_OBJECT;
	if (m->context != queue->context)
		return CL_INVALID_CONTEXT;
	return mem_misaligned(m, queue->device) ? CL_MISALIGNED_SUB_BUFFER_OFFSET : 0;
}

int32_t check_image(cl_command_queue queue, cl_mem m) {
	if (!mem_is_image(m))
		return CL_INVALID_MEM_OBJECT;
	return m->context == queue->context ? 0 : CL_INVALID_CONTEXT;
}

int32_t check_host_access(cl_mem m, cl_mem_flags refused, cl_uint count, const cl_event *list) {
	if (!(m->flags & refused & MEM_HOST_ACCESS))
		return 0;
	int32_t status = command_check_waits(m->context, count, list);
	return status ? status : CL_INVALID_OPERATION;
}

int32_t check_range(cl_mem m, size_t offset, size_t size) {
	return offset <= m->size && size <= m->size - offset ? 0 : CL_INVALID_VALUE;
}

/* Computes *a += b * c; returns 0 when that overflows. */
static int add_product(size_t *a, size_t b, size_t c) {
	size_t product;
	return !__builtin_mul_overflow(b, c, &product) && !__builtin_add_overflow(*a, product, a);
}

int32_t check_rectangle(size_t size, const size_t *origin, const size_t *region, size_t *row_pitch, size_t *slice_pitch) {
	if (!origin || !region || !region[0] || !region[1] || !region[2])
		return CL_INVALID_VALUE;
	if (*row_pitch == 0)
		*row_pitch = region[0];
	size_t slice = 0;
	if (*row_pitch < region[0] || !add_product(&slice, *row_pitch, region[1]))
		return CL_INVALID_VALUE;
	if (*slice_pitch == 0)
		*slice_pitch = slice;
	if (*slice_pitch < slice || *slice_pitch % *row_pitch != 0)
		return CL_INVALID_VALUE;
	size_t end = origin[0];
	int fits = add_product(&end, origin[1], *row_pitch) && add_product(&end, origin[2], *slice_pitch) && add_product(&end, region[0], 1)
		&& add_product(&end, region[1] - 1, *row_pitch) && add_product(&end, region[2] - 1, *slice_pitch);
	return fits && end <= size ? 0 : CL_INVALID_VALUE;
}

static int overlap(size_t a, size_t b, size_t size) { return a < b ? b - a < size : a - b < size; }

/* Returns true when both objects share memory: the same object, or two parts of one buffer; then
 * *a_start and *b_start are offsets in it. */
static int same_memory(cl_mem a, cl_mem b, size_t *a_start, size_t *b_start) {
	*a_start = a->offset;
	*b_start = b->offset;
	return a == b || (a->parent && a->parent == b->parent && mem_is_buffer(a) && mem_is_buffer(b));
}

int32_t check_clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_size, size_t offset, size_t size, cl_uint count, const cl_event *list, cl_event *event) {
	(void)count, (void)list, (void)event;
	int32_t status = check_buffer(queue, buffer);
	if (status == 0)
		status = check_range(buffer, offset, size);
	if (status != 0)
		return status;
	if (!pattern || pattern_size == 0 || pattern_size > 128 || (pattern_size & (pattern_size - 1)))
		return CL_INVALID_VALUE;
	return offset % pattern_size || size % pattern_size ? CL_INVALID_VALUE : 0;
}

int32_t check_clEnqueueFillImage(cl_command_queue queue, cl_mem image, const void *fill_color, const size_t *origin, const size_t *region, cl_uint count, const cl_event *list, cl_event *event) {
	(void)count, (void)list, (void)event;
	int32_t status = check_image(queue, image);
	if (status == 0 && !fill_color)
		status = CL_INVALID_VALUE;
	return status ? status : image_region(image, origin, region);
}

int32_t check_clEnqueueCopyBuffer(cl_command_queue queue, cl_mem src, cl_mem dst, size_t src_offset, size_t dst_offset, size_t size, cl_uint count, const cl_event *list, cl_event *event) {
	(void)count, (void)list, (void)event;
	int32_t status = check_buffer(queue, src);
	if (status == 0)
		status = check_buffer(queue, dst);
	if (status != 0)
		return status;
	if (size == 0 || check_range(src, src_offset, size) || check_range(dst, dst_offset, size))
		return CL_INVALID_VALUE;
	size_t a, b;
	return same_memory(src, dst, &a, &b) && overlap(a + src_offset, b + dst_offset, size) ? CL_MEM_COPY_OVERLAP : 0;
}

/* Returns true when rows (or slices) of one rectangle lie beside those of the other, within the
 * pitch. */
static int beside(size_t a, size_t b, size_t size, size_t pitch) {
	return (b >= a + size && b + size <= a + pitch) || (a >= b + size && a + size <= b + pitch);
}

/* Implements the algorithm of the specification's appendix, for rectangles of equal pitches that
 * start at bytes a and b. */
static int boxes_overlap(size_t a, size_t b, const size_t *region, size_t row_pitch, size_t slice_pitch) {
	size_t slice = (region[1] - 1) * row_pitch + region[0];
	size_t block = (region[2] - 1) * slice_pitch + slice;
	if (!overlap(a, b, block))
		return 0;
	if (beside(a % row_pitch, b % row_pitch, region[0], row_pitch))
		return 0;
	return !beside(a % slice_pitch, b % slice_pitch, slice, slice_pitch);
}

int32_t check_clEnqueueCopyBufferRect(cl_command_queue queue, cl_mem src, cl_mem dst, const size_t *src_origin, const size_t *dst_origin, const size_t *region, size_t src_row_pitch, size_t src_slice_pitch, size_t dst_row_pitch, size_t dst_slice_pitch, cl_uint count, const cl_event *list, cl_event *event) {
	(void)count, (void)list, (void)event;
	int32_t status = check_buffer(queue, src);
	if (status == 0)
		status = check_buffer(queue, dst);
	if (status == 0)
		status = check_rectangle(src->size, src_origin, region, &src_row_pitch, &src_slice_pitch);
	if (status == 0)
		status = check_rectangle(dst->size, dst_origin, region, &dst_row_pitch, &dst_slice_pitch);
	size_t a, b;
	if (status != 0 || !same_memory(src, dst, &a, &b))
		return status;
	if (src_row_pitch != dst_row_pitch || src_slice_pitch != dst_slice_pitch)
		return CL_INVALID_VALUE;
	a += src_origin[2] * src_slice_pitch + src_origin[1] * src_row_pitch + src_origin[0];
	b += dst_origin[2] * dst_slice_pitch + dst_origin[1] * dst_row_pitch + dst_origin[0];
	return boxes_overlap(a, b, region, src_row_pitch, src_slice_pitch) ? CL_MEM_COPY_OVERLAP : 0;
}

static int same_format(cl_mem a, cl_mem b) {
	return a->image.format.image_channel_order == b->image.format.image_channel_order
		&& a->image.format.image_channel_data_type == b->image.format.image_channel_data_type;
}

int32_t check_clEnqueueCopyImage(cl_command_queue queue, cl_mem src, cl_mem dst, const size_t *src_origin, const size_t *dst_origin, const size_t *region, cl_uint count, const cl_event *list, cl_event *event) {
	(void)count, (void)list, (void)event;
	int32_t status = check_image(queue, src);
	if (status == 0)
		status = check_image(queue, dst);
	if (status == 0 && !same_format(src, dst))
		status = CL_IMAGE_FORMAT_MISMATCH;
	if (status == 0)
		status = image_region(src, src_origin, region);
	if (status == 0)
		status = image_region(dst, dst_origin, region);
	if (status != 0 || src != dst)
		return status;
	for (int i = 0; i < 3; i++)
		if (!overlap(src_origin[i], dst_origin[i], region[i]))
			return 0;
	return CL_MEM_COPY_OVERLAP;
}

/* Checks an image's region and a buffer that holds its bytes tightly packed. */
static int32_t check_image_and_buffer(cl_command_queue queue, cl_mem image, cl_mem buffer, const size_t *origin, const size_t *region, size_t offset) {
	int32_t status = check_image(queue, image);
	if (status == 0)
		status = check_buffer(queue, buffer);
	if (status == 0)
		status = image_region(image, origin, region);
	return status ? status : check_range(buffer, offset, region[0] * region[1] * region[2] * image->image.element);
}

int32_t check_clEnqueueCopyImageToBuffer(cl_command_queue queue, cl_mem src, cl_mem dst, const size_t *src_origin, const size_t *region, size_t dst_offset, cl_uint count, const cl_event *list, cl_event *event) {
	(void)count, (void)list, (void)event;
	return check_image_and_buffer(queue, src, dst, src_origin, region, dst_offset);
}

int32_t check_clEnqueueCopyBufferToImage(cl_command_queue queue, cl_mem src, cl_mem dst, size_t src_offset, const size_t *dst_origin, const size_t *region, cl_uint count, const cl_event *list, cl_event *event) {
	(void)count, (void)list, (void)event;
	return check_image_and_buffer(queue, dst, src, dst_origin, region, src_offset);
}
