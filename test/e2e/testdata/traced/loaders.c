// Shares a context between two OpenCL loaders, as the libraries of one process do: the other one is
// given by its path, and is never asked for platforms.
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int status, const char *what) {
	if (status == CL_SUCCESS)
		return;
	printf("%s: %d\n", what, status);
	exit(1);
}

int main(int count, char **args) {
	cl_platform_id platform;
	cl_device_id device;
	cl_int status, data[16] = {1, 2, 3}, back[16];
	void *other = count > 1 ? dlopen(args[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!other)
		check(1, "no other loader");
	cl_command_queue (*create_queue)(cl_context, cl_device_id, cl_command_queue_properties, cl_int *) = dlsym(other, "clCreateCommandQueue");
	cl_mem (*create_buffer)(cl_context, cl_mem_flags, size_t, void *, cl_int *) = dlsym(other, "clCreateBuffer");
	cl_int (*write_buffer)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *, cl_event *) = dlsym(other, "clEnqueueWriteBuffer");
	check(clGetPlatformIDs(1, &platform, NULL), "platforms");
	check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "devices");
	cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
	check(status, "context");
	cl_command_queue queue = create_queue(context, device, 0, &status);
	check(status, "queue");
	cl_mem buffer = create_buffer(context, CL_MEM_READ_WRITE, sizeof data, NULL, &status);
	check(status, "buffer");
	for (int i = 0; i < 3; i++)
		check(write_buffer(queue, buffer, CL_FALSE, 0, sizeof data, data, 0, NULL, NULL), "write");
	check(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL), "read");
	printf("%d %d %d\n", back[0], back[1], back[2]);
	clReleaseMemObject(buffer);
	clReleaseCommandQueue(queue);
	clReleaseContext(context);
}
