// Creates queues with properties that only the driver can check, some of which it refuses.
#include <CL/cl.h>
#include <stdio.h>

int main(void) {
	static const cl_queue_properties all[][5] = {
		{CL_QUEUE_PROPERTIES, 0, 0},
		{CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0},
		{CL_QUEUE_SIZE, 1024, 0},
		{CL_QUEUE_PROPERTIES, CL_QUEUE_ON_DEVICE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_SIZE, 1024, 0},
		{0x9999, 1, 0},
		{CL_QUEUE_PROPERTIES, 1 << 20, 0},
		{0},
	};
	cl_platform_id platform;
	cl_device_id device;
	cl_int status;
	if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
		return 1;
	cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, all[i], &status);
		printf("%zu: %d\n", i, status);
		if (queue)
			clReleaseCommandQueue(queue);
	}
	cl_command_queue queue = clCreateCommandQueue(context, device, 1 << 20, &status);
	printf("%d %d\n", queue != NULL, status);
	clReleaseContext(context);
	return 0;
}
