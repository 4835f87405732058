/* pipe.c: pipes. Only kernels access their contents, so a pipe serves the link whose kernels use
 * it. Layer: calls. */
#include "calls.h"

/* Before OpenCL 3.0 no property reports pipes, but there they are not optional. */
static int has_pipes(cl_device_id device) {
	return device_bool(device, CL_DEVICE_PIPE_SUPPORT) || (device_number(device, CL_DEVICE_MAX_PIPE_ARGS) > 0
		&& device_number(device, CL_DEVICE_NUMERIC_VERSION) == 0);
}

static uint64_t pipe_links(cl_context context, uint64_t *largest) {
	uint64_t links = 0;
	*largest = 0;
	for (cl_uint i = 0; i < context->device_count; i++) {
		cl_device_id device = context->devices[i];
		if (!has_pipes(device))
			continue;
		uint64_t n = device_number(device, CL_DEVICE_PIPE_MAX_PACKET_SIZE);
		*largest = n > *largest ? n : *largest;
		links |= device->link->bit;
	}
	return links;
}

static int32_t check_pipe(cl_context context, cl_mem_flags flags, cl_uint packet, cl_uint packets, const cl_pipe_properties *properties, uint64_t *links) {
	uint64_t largest;
	*links = pipe_links(context, &largest);
	if (*links == 0)
		return CL_INVALID_OPERATION;
	if ((flags & ~(cl_mem_flags)(CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS)) || properties)
		return CL_INVALID_VALUE;
	return packet == 0 || packets == 0 || packet > largest ? CL_INVALID_PIPE_SIZE : 0;
}

cl_mem ob_clCreatePipe(cl_context context, cl_mem_flags flags, cl_uint packet, cl_uint packets, const cl_pipe_properties *properties, cl_int *errcode_ret) {
	uint64_t links;
	int32_t status = check_pipe(context, flags, packet, packets, properties, &links);
	if (status != 0)
		return mem_fail(status, errcode_ret);
	size_t size = (size_t)packet * packets;
	cl_mem m = mem_new_root(context, CL_MEM_OBJECT_PIPE, flags ? flags : CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS, size, size, links, &status);
	if (!m)
		return mem_fail(status, errcode_ret);
	m->packet_size = packet;
	m->max_packets = packets;
	struct creation creation = {0, 0};
	struct link *link;
	FOR_LINKS(link, links)
		creation_note(&creation, send_clCreatePipe(link->session, NULL, context->o.id, mem_wire_flags(flags), packet, packets, NULL, 0, m->o.id));
	return mem_created(m, &creation, errcode_ret);
}

cl_int ob_clGetPipeInfo(cl_mem m, cl_pipe_info name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	if (!mem_is_pipe(m))
		return CL_INVALID_MEM_OBJECT;
	switch (name) {
	case CL_PIPE_PACKET_SIZE:
		INFO(cl_uint, m->packet_size);
	case CL_PIPE_MAX_PACKETS:
		INFO(cl_uint, m->max_packets);
	case CL_PIPE_PROPERTIES:
		return info_answer(NULL, 0, param_value_size, param_value, param_value_size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}
