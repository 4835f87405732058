/* What users of clFFT do: a library that writes its own kernels, there and back. */
#define CL_TARGET_OPENCL_VERSION 120
#include <clFFT.h>
#include <math.h>
#include <stdio.h>

enum { SIDE = 64, COUNT = 2 * SIDE * SIDE };

static cl_context context;
static cl_command_queue queue;

static int start(void) {
	cl_platform_id platform;
	cl_device_id device;
	cl_int status;
	if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
		return 1;
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	if (status == 0)
		queue = clCreateCommandQueue(context, device, 0, &status);
	clfftSetupData setup = {clfftVersionMajor, clfftVersionMinor, clfftVersionPatch, 0};
	return status || clfftSetup(&setup);
}

static int transform(cl_mem data) {
	clfftPlanHandle plan;
	size_t lengths[2] = {SIDE, SIDE};
	cl_event there;
	int status = clfftCreateDefaultPlan(&plan, context, CLFFT_2D, lengths);
	if (status == 0)
		status = clfftSetLayout(plan, CLFFT_COMPLEX_INTERLEAVED, CLFFT_COMPLEX_INTERLEAVED);
	if (status == 0)
		status = clfftBakePlan(plan, 1, &queue, NULL, NULL);
	printf("plan: %d\n", status);
	status = clfftEnqueueTransform(plan, CLFFT_FORWARD, 1, &queue, 0, NULL, &there, &data, NULL, NULL);
	printf("there: %d\n", status);
	if (status == 0)
		status = clfftEnqueueTransform(plan, CLFFT_BACKWARD, 1, &queue, 1, &there, NULL, &data, NULL, NULL);
	printf("back: %d\n", status);
	clfftDestroyPlan(&plan);
	return status;
}

int main(void) {
	static float in[COUNT], out[COUNT];
	for (int i = 0; i < COUNT; i++)
		in[i] = (float)(i % 17);
	if (start())
		return 1;
	cl_int status;
	cl_mem data = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof in, in, &status);
	if (status || transform(data) || clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL))
		return 1;
	double worst = 0;
	for (int i = 0; i < COUNT; i++)
		worst = fmax(worst, fabs(in[i] - out[i]));
	printf("the same again: %d\n", worst < 1e-3);
	clReleaseMemObject(data);
	clfftTeardown();
	clReleaseCommandQueue(queue);
	clReleaseContext(context);
	return 0;
}
