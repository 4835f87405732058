// The objects that the cases share, and short forms for creating new ones.
#include "clt.h"

cl_platform_id clt_platform(void) {
	static cl_platform_id platform;
	if (!platform)
		MUST(clGetPlatformIDs(1, &platform, NULL));
	return platform;
}

cl_device_id clt_device(void) {
	static cl_device_id device;
	if (!device)
		MUST(clGetDeviceIDs(clt_platform(), CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	return device;
}

int clt_version(void) {
	char text[256] = "";
	int major = 0, minor = 0;
	MUST(clGetDeviceInfo(clt_device(), CL_DEVICE_VERSION, sizeof text, text, NULL));
	CHECK(sscanf(text, "OpenCL %d.%d", &major, &minor) == 2);
	return major * 10 + minor;
}

cl_context clt_new_context(void) {
	cl_device_id device = clt_device();
	cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)clt_platform(), 0};
	cl_int code;
	cl_context context = clCreateContext(properties, 1, &device, NULL, NULL, &code);
	MUST(code);
	return context;
}

cl_context clt_context(void) {
	static cl_context context;
	if (!context)
		context = clt_new_context();
	return context;
}

cl_command_queue clt_new_queue(cl_context context, cl_command_queue_properties properties) {
	cl_int code;
	cl_command_queue queue = clCreateCommandQueue(context, clt_device(), properties, &code);
	MUST(code);
	return queue;
}

cl_command_queue clt_queue(void) {
	static cl_command_queue queue;
	if (!queue)
		queue = clt_new_queue(clt_context(), 0);
	return queue;
}

cl_program clt_build_in(cl_context context, const char *source, const char *options) {
	cl_int code;
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
	MUST(code);
	code = clBuildProgram(program, 0, NULL, options, NULL, NULL);
	if (code != CL_SUCCESS) {
		static char log[16384];
		clGetProgramBuildInfo(program, clt_device(), CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
		fprintf(stderr, "%s\n", log);
	}
	MUST(code);
	return program;
}

cl_program clt_build(const char *source, const char *options) {
	return clt_build_in(clt_context(), source, options);
}

cl_kernel clt_kernel(cl_program program, const char *name) {
	cl_int code;
	cl_kernel kernel = clCreateKernel(program, name, &code);
	MUST(code);
	return kernel;
}

cl_mem clt_buffer(cl_mem_flags flags, size_t size, void *host) {
	cl_int code;
	cl_mem buffer = clCreateBuffer(clt_context(), flags, size, host, &code);
	MUST(code);
	return buffer;
}
