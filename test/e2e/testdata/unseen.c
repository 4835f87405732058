/* unseen: commands without events fail with a user event, over and over. Drivers forget such commands while they are still
 * at them (PoCL 3.1); the program prints "ok" when each failure was seen and no command had run.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 40, SIZE = 4096 };

static const char *source = "kernel void add(global int *a, int k) { a[get_global_id(0)] += k; }";

#define TRY(code) do { cl_int try_code = (code); if (try_code != CL_SUCCESS) { printf("%d: %d\n", __LINE__, try_code); exit(3); } } while (0)

int main(void)
{
	cl_platform_id platform;
	cl_device_id device;
	cl_int code, k = 1;
	TRY(clGetPlatformIDs(1, &platform, NULL));
	TRY(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
	cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
	TRY(code);
	cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
	TRY(code);
	TRY(clBuildProgram(program, 0, NULL, "", NULL, NULL));
	cl_kernel add = clCreateKernel(program, "add", &code);
	TRY(code);
	for (int i = 0; i < ROUNDS; i++) {
		static int zeros[SIZE / sizeof(int)], got[SIZE / sizeof(int)];
		size_t items = SIZE / sizeof(int);
		cl_event seen;
		cl_command_queue queue = clCreateCommandQueue(context, device, i & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &code);
		TRY(code);
		cl_mem at = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, SIZE, zeros, &code);
		TRY(code);
		cl_event gate = clCreateUserEvent(context, &code);
		TRY(code);
		TRY(clSetKernelArg(add, 0, sizeof at, &at));
		TRY(clSetKernelArg(add, 1, sizeof k, &k));
		for (int n = 0; n < 4; n++)
			TRY(clEnqueueNDRangeKernel(queue, add, 1, NULL, &items, NULL, 1, &gate, NULL));
		TRY(clEnqueueFillBuffer(queue, at, "z", 1, 0, SIZE, 1, &gate, NULL));
		TRY(clEnqueueNDRangeKernel(queue, add, 1, NULL, &items, NULL, 1, &gate, &seen));
		TRY(clSetUserEventStatus(gate, -5));
		if ((code = clWaitForEvents(1, &seen)) != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
			TRY(code ? code : -1);
		(void)clFinish(queue);
		TRY(clEnqueueReadBuffer(queue, at, CL_TRUE, 0, SIZE, got, 0, NULL, NULL));
		if (got[0] != 0)
			TRY(-2);
		TRY(clReleaseEvent(seen));
		TRY(clReleaseEvent(gate));
		TRY(clReleaseMemObject(at));
		TRY(clReleaseCommandQueue(queue));
	}
	puts("ok");
	return 0;
}
