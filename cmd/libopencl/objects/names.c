/* names.c: names of operations and statuses, for messages. Layer: objects. */
#include "library.h"

#define OP(name) {OP_##name, #name}
#define CODE(name) {name, #name}

static const struct {
	uint32_t op;
	const char *name;
} ops[] = {
	OP(clGetPlatformInfo), OP(clGetDeviceInfo), OP(clCreateSubDevices), OP(clSetDefaultDeviceCommandQueue),
	OP(clGetDeviceAndHostTimer), OP(clGetHostTimer), OP(clCreateContext), OP(clCreateCommandQueueWithProperties),
	OP(clCreateCommandQueue), OP(clFlush), OP(clFinish), OP(clCreateBuffer),
	OP(clCreateBufferWithProperties), OP(clCreateSubBuffer), OP(clCreateImage), OP(clCreatePipe), OP(clGetSupportedImageFormats),
	OP(clCreateSamplerWithProperties), OP(clCreateSampler), OP(clCreateProgramWithSource), OP(clCreateProgramWithBinary),
	OP(clCreateProgramWithBuiltInKernels), OP(clCreateProgramWithIL), OP(clBuildProgram), OP(clCompileProgram), OP(clLinkProgram),
	OP(clSetProgramSpecializationConstant), OP(clGetProgramInfo), OP(clGetProgramBuildInfo), OP(clCreateKernel), OP(clCloneKernel),
	OP(clSetKernelArg), OP(clGetKernelInfo), OP(clGetKernelArgInfo), OP(clGetKernelWorkGroupInfo), OP(clGetKernelSubGroupInfo),
	OP(clWaitForEvents), OP(clCreateUserEvent), OP(clSetUserEventStatus), OP(clGetEventProfilingInfo), OP(clEnqueueReadBuffer),
	OP(clEnqueueReadBufferRect), OP(clEnqueueWriteBuffer), OP(clEnqueueWriteBufferRect), OP(clEnqueueReadImage),
	OP(clEnqueueWriteImage), OP(clEnqueueFillBuffer), OP(clEnqueueFillImage), OP(clEnqueueCopyBuffer), OP(clEnqueueCopyBufferRect),
	OP(clEnqueueCopyImage), OP(clEnqueueCopyImageToBuffer), OP(clEnqueueCopyBufferToImage), OP(clEnqueueMigrateMemObjects),
	OP(clEnqueueNDRangeKernel), OP(clEnqueueMarkerWithWaitList), OP(clEnqueueBarrierWithWaitList), OP(clock),
};

static const struct {
	int32_t code;
	const char *name;
} codes[] = {
	CODE(CL_DEVICE_NOT_FOUND), CODE(CL_DEVICE_NOT_AVAILABLE), CODE(CL_COMPILER_NOT_AVAILABLE),
	CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE), CODE(CL_OUT_OF_RESOURCES), CODE(CL_OUT_OF_HOST_MEMORY),
	CODE(CL_PROFILING_INFO_NOT_AVAILABLE), CODE(CL_MEM_COPY_OVERLAP), CODE(CL_IMAGE_FORMAT_MISMATCH),
	CODE(CL_IMAGE_FORMAT_NOT_SUPPORTED), CODE(CL_BUILD_PROGRAM_FAILURE), CODE(CL_MAP_FAILURE),
	CODE(CL_MISALIGNED_SUB_BUFFER_OFFSET), CODE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST), CODE(CL_COMPILE_PROGRAM_FAILURE),
	CODE(CL_LINKER_NOT_AVAILABLE), CODE(CL_LINK_PROGRAM_FAILURE), CODE(CL_DEVICE_PARTITION_FAILED),
	CODE(CL_KERNEL_ARG_INFO_NOT_AVAILABLE), CODE(CL_INVALID_VALUE), CODE(CL_INVALID_DEVICE_TYPE), CODE(CL_INVALID_PLATFORM),
	CODE(CL_INVALID_DEVICE), CODE(CL_INVALID_CONTEXT), CODE(CL_INVALID_QUEUE_PROPERTIES), CODE(CL_INVALID_COMMAND_QUEUE),
	CODE(CL_INVALID_HOST_PTR), CODE(CL_INVALID_MEM_OBJECT), CODE(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR), CODE(CL_INVALID_IMAGE_SIZE),
	CODE(CL_INVALID_SAMPLER), CODE(CL_INVALID_BINARY), CODE(CL_INVALID_BUILD_OPTIONS), CODE(CL_INVALID_PROGRAM),
	CODE(CL_INVALID_PROGRAM_EXECUTABLE), CODE(CL_INVALID_KERNEL_NAME), CODE(CL_INVALID_KERNEL_DEFINITION), CODE(CL_INVALID_KERNEL),
	CODE(CL_INVALID_ARG_INDEX), CODE(CL_INVALID_ARG_VALUE), CODE(CL_INVALID_ARG_SIZE), CODE(CL_INVALID_KERNEL_ARGS),
	CODE(CL_INVALID_WORK_DIMENSION), CODE(CL_INVALID_WORK_GROUP_SIZE), CODE(CL_INVALID_WORK_ITEM_SIZE),
	CODE(CL_INVALID_GLOBAL_OFFSET), CODE(CL_INVALID_EVENT_WAIT_LIST), CODE(CL_INVALID_EVENT), CODE(CL_INVALID_OPERATION),
	CODE(CL_INVALID_GL_OBJECT), CODE(CL_INVALID_BUFFER_SIZE), CODE(CL_INVALID_MIP_LEVEL), CODE(CL_INVALID_GLOBAL_WORK_SIZE),
	CODE(CL_INVALID_PROPERTY), CODE(CL_INVALID_IMAGE_DESCRIPTOR), CODE(CL_INVALID_COMPILER_OPTIONS),
	CODE(CL_INVALID_LINKER_OPTIONS), CODE(CL_INVALID_DEVICE_PARTITION_COUNT), CODE(CL_INVALID_PIPE_SIZE),
	CODE(CL_INVALID_DEVICE_QUEUE), CODE(CL_INVALID_SPEC_ID), CODE(CL_MAX_SIZE_RESTRICTION_EXCEEDED), CODE(CL_BUILD_NONE),
	CODE(CL_BUILD_ERROR), CODE(CL_BUILD_IN_PROGRESS),
};

const char *name_of_op(uint32_t op) {
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
		if (ops[i].op == op)
			return ops[i].name;
	return "a call";
}

const char *name_of_status(int32_t status) {
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (codes[i].code == status)
			return codes[i].name;
	return "an unknown error";
}
