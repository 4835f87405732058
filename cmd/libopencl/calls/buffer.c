/* buffer.c: creates buffers and sub-buffers. No call waits: requests that a driver could reject are
 * rejected here first. Layer: calls. */
#include "calls.h"
#include "svm.h"

static int32_t check_buffer_new(cl_context context, cl_mem_flags flags, size_t size, const void *host_ptr) {
	int32_t status = mem_check_flags(flags);
	if (status == 0 && (size == 0 || size > context_most(context, CL_DEVICE_MAX_MEM_ALLOC_SIZE)))
		status = CL_INVALID_BUFFER_SIZE;
	return status ? status : mem_check_host_ptr(flags, host_ptr);
}

static void buffer_send(cl_mem m, const void *contents, struct creation *creation) {
	struct link *link;
	struct layout bulk = layout_flat(contents, m->size);
	FOR_LINKS(link, m->o.links)
		creation_note(creation, send_clCreateBuffer(link->session, NULL, api_id(m->context), mem_wire_flags(m->flags), m->size, m->o.id,
			contents ? &bulk : NULL));
}

static cl_mem buffer_new(cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, size_t size, void *host_ptr, cl_int *errcode_ret) {
	int32_t status = mem_check_properties(properties);
	if (status == 0)
		status = check_buffer_new(context, flags, size, host_ptr);
	if (status != 0)
		return mem_fail(status, errcode_ret);
	cl_mem m = mem_new_root(context, CL_MEM_OBJECT_BUFFER, flags, size, size, mem_links(context, size), &status);
	if (!m)
		return mem_fail(status, errcode_ret);
	struct creation creation = {0, CL_OUT_OF_HOST_MEMORY};
	m->host_ptr = flags & CL_MEM_USE_HOST_PTR ? host_ptr : NULL;
	mem_created_shadow(m, host_ptr);
	if (mem_keep_properties(m, properties))
		buffer_send(m, host_ptr, &creation);
	return mem_created(m, &creation, errcode_ret);
}

/* Returns the links with at least one device that can address a part at that origin. */
static uint64_t aligned_links(cl_context context, size_t origin) {
	uint64_t links = 0;
	for (cl_uint i = 0; i < context->device_count; i++) {
		uint64_t bits = device_number(context->devices[i], CL_DEVICE_MEM_BASE_ADDR_ALIGN);
		if (bits < 8 || origin % (bits / 8) == 0)
			links |= context->devices[i]->link->bit;
	}
	return links;
}

/* Drivers accept parts of whole buffers only. */
static void part_send(cl_mem m, uint64_t flags, struct creation *creation) {
	struct link *link;
	cl_buffer_region region = {m->offset, m->size};
	FOR_LINKS(link, m->o.links)
		creation_note(creation, send_clCreateSubBuffer(link->session, NULL, api_id(m->root), flags, CL_BUFFER_CREATE_TYPE_REGION, &region, sizeof region,
			m->o.id));
}

/* Creates a buffer over shared virtual memory: a part of the allocation's own buffer. */
static cl_mem buffer_over_svm(cl_mem whole, size_t offset, cl_mem_flags flags, size_t size, cl_int *errcode_ret) {
	int32_t status = 0;
	uint64_t links = whole->o.links & aligned_links(whole->context, offset);
	if (size > whole->size - offset)
		return mem_fail(CL_INVALID_BUFFER_SIZE, errcode_ret);
	if (!links)
		return mem_fail(CL_INVALID_HOST_PTR, errcode_ret);
	cl_mem m = mem_new_part(whole, CL_MEM_OBJECT_BUFFER, flags, offset, size, links, &status);
	if (!m)
		return mem_fail(status, errcode_ret);
	struct creation creation = {0, CL_OUT_OF_HOST_MEMORY};
	part_send(m, mem_wire_flags(flags), &creation);
	return mem_created(m, &creation, errcode_ret);
}

/* Creates a buffer, which may have the program's memory as its storage. */
static cl_mem buffer_use(cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, size_t size, void *host_ptr, cl_int *errcode_ret) {
	size_t offset;
	cl_mem whole = flags & CL_MEM_USE_HOST_PTR ? svm_find(context, host_ptr, 1, &offset) : NULL;
	if (!whole)
		return buffer_new(context, properties, flags, size, host_ptr, errcode_ret);
	int32_t status = mem_check_properties(properties);
	if (status == 0)
		status = check_buffer_new(context, flags, size, host_ptr);
	cl_mem m = status ? mem_fail(status, errcode_ret) : buffer_over_svm(whole, offset, flags, size, errcode_ret);
	object_drop(whole);
	return m;
}

cl_mem ob_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host_ptr, cl_int *errcode_ret) {
	return buffer_use(context, NULL, flags, size, host_ptr, errcode_ret);
}

cl_mem ob_clCreateBufferWithProperties(cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, size_t size, void *host_ptr, cl_int *errcode_ret) {
	return buffer_use(context, properties, flags, size, host_ptr, errcode_ret);
}

static int32_t check_part_new(cl_mem whole, cl_mem_flags flags, cl_buffer_create_type type, const cl_buffer_region *region, uint64_t *links) {
	if (!mem_is_buffer(whole) || (whole->parent && !mem_over_svm(whole)))
		return CL_INVALID_MEM_OBJECT;
	int32_t status = mem_check_part_flags(whole, flags);
	if (status != 0)
		return status;
	if (!region || type != CL_BUFFER_CREATE_TYPE_REGION)
		return CL_INVALID_VALUE;
	if (region->size == 0)
		return CL_INVALID_BUFFER_SIZE;
	if (check_range(whole, region->origin, region->size) != 0)
		return CL_INVALID_VALUE;
	*links = whole->o.links & aligned_links(whole->context, region->origin);
	return *links ? 0 : CL_MISALIGNED_SUB_BUFFER_OFFSET;
}

cl_mem ob_clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type, const void *info, cl_int *errcode_ret) {
	const cl_buffer_region *region = info;
	uint64_t links = 0;
	int32_t status = check_part_new(buffer, flags, type, region, &links);
	if (status != 0)
		return mem_fail(status, errcode_ret);
	cl_mem m = mem_new_part(buffer, CL_MEM_OBJECT_BUFFER, flags, region->origin, region->size, links, &status);
	if (!m)
		return mem_fail(status, errcode_ret);
	struct creation creation = {0, 0};
	part_send(m, flags & (MEM_ACCESS | CL_MEM_KERNEL_READ_AND_WRITE), &creation);
	return mem_created(m, &creation, errcode_ret);
}
