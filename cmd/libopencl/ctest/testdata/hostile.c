/* hostile.c: a carefully written OpenCL program, for a worker with arbitrary answers. For each line
 * on standard input it forks a child that runs through the API, and prints how the child ended:
 * "ok", or the wait status; after the line "honest" the worker is honest, and every part of the API
 * must succeed; after "older" it is honest and without SVM; after "end N" a read ends in the Nth way
 * only. Every size in an answer is allocated exactly, every text is read to its NUL and every number
 * has the variable of its type, so that the sanitizers detect every access that an answer can cause
 * in the library or the program. */
#include "calls.h"

#include <semaphore.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CL api_dispatch

struct form {
	uint16_t op;
	uint32_t param;
	int text;
	size_t size;
};
static const struct form forms[] = {
#include "forms.inc" /* generated from the description by the test */
};

static volatile size_t sink;
static unsigned reached; /* code paths that the program reaches with an honest worker, a bit each */
enum { SVM = 1 << 11, READ_ENDED = 1 << 12, NO_SVM = 1 << 13, ALL_PLACES = NO_SVM - 1 };
static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue, other, unordered; /* unordered: out of order */
static void *shared; /* shared virtual memory, or NULL */

typedef cl_int query_function(void *object, cl_uint param, size_t size, void *value, size_t *size_ret);

static void read_text(query_function *query, void *object, cl_uint param) {
	size_t size = 0;
	if (query(object, param, 0, NULL, &size) != 0 || size > (32 << 20))
		return;
	char *text = malloc(size ? size : 1);
	if (query(object, param, size, text, NULL) == 0 && size)
		sink += strlen(text);
	free(text);
}

static void read_list(query_function *query, void *object, cl_uint param) {
	size_t size = 0;
	if (query(object, param, 0, NULL, &size) != 0 || size > (32 << 20))
		return;
	unsigned char *list = malloc(size ? size : 1);
	if (query(object, param, size, list, NULL) == 0)
		for (size_t i = 0; i < size; i++)
			sink += list[i];
	free(list);
}

static void read_all(query_function *query, void *object, uint16_t op) {
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		const struct form *f = &forms[i];
		unsigned char value[64];
		if (f->op != op)
			continue;
		if (f->text)
			read_text(query, object, f->param);
		else if (!f->size)
			read_list(query, object, f->param);
		else if (query(object, f->param, f->size, value, NULL) == 0)
			for (size_t k = 0; k < f->size; k++)
				sink += value[k] ? 1 : 2; /* a branch on the value, for the sanitizer */
		query(object, f->param, 1, value, NULL);
	}
}

static cl_int platform_query(void *o, cl_uint p, size_t n, void *v, size_t *r) { return CL.clGetPlatformInfo(o, p, n, v, r); }
static cl_int device_query(void *o, cl_uint p, size_t n, void *v, size_t *r) { return CL.clGetDeviceInfo(o, p, n, v, r); }
static cl_int program_query(void *o, cl_uint p, size_t n, void *v, size_t *r) { return CL.clGetProgramInfo(o, p, n, v, r); }
static cl_int build_query(void *o, cl_uint p, size_t n, void *v, size_t *r) { return CL.clGetProgramBuildInfo(o, device, p, n, v, r); }
static cl_int kernel_query(void *o, cl_uint p, size_t n, void *v, size_t *r) { return CL.clGetKernelInfo(o, p, n, v, r); }
static cl_int arg_query(void *o, cl_uint p, size_t n, void *v, size_t *r) { return CL.clGetKernelArgInfo(o, 0, p, n, v, r); }
static cl_int group_query(void *o, cl_uint p, size_t n, void *v, size_t *r) { return CL.clGetKernelWorkGroupInfo(o, device, p, n, v, r); }

static void sub_devices(void) {
	const cl_device_partition_property by[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
	cl_uint count = 0;
	if (CL.clCreateSubDevices(device, by, 0, NULL, &count) != 0 || count == 0 || count > 65536)
		return;
	cl_device_id *all = malloc(count * sizeof *all);
	cl_uint made = 0;
	if (CL.clCreateSubDevices(device, by, count, all, &made) == 0)
		for (cl_uint i = 0; i < made; i++) {
			read_list(device_query, all[i], CL_DEVICE_PARTITION_TYPE);
			reached |= CL.clReleaseDevice(all[i]) == 0;
		}
	free(all);
}

static void binaries(cl_program program) {
	cl_uint devices = 0;
	if (CL.clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof devices, &devices, NULL) != 0 || devices != 1)
		return;
	size_t size = 0;
	if (CL.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) != 0 || size > (64 << 20))
		return;
	unsigned char *binary = malloc(size ? size : 1);
	if (CL.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == 0 && size) {
		for (size_t i = 0; i < size; i++)
			sink += binary[i];
		cl_int status, made;
		const unsigned char *constant = binary;
		cl_program again = CL.clCreateProgramWithBinary(context, 1, &device, &size, &constant, &made, &status);
		if (again) {
			CL.clBuildProgram(again, 0, NULL, "", NULL, NULL);
			CL.clReleaseProgram(again);
			reached |= 2;
		}
	}
	free(binary);
}

static void kernel_calls(cl_kernel kernel, cl_mem buffer) {
	cl_uint count = 0, four = 4;
	read_all(kernel_query, kernel, OP_clGetKernelInfo);
	read_all(arg_query, kernel, OP_clGetKernelArgInfo);
	read_all(group_query, kernel, OP_clGetKernelWorkGroupInfo);
	CL.clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL);
	for (cl_uint i = 0; i < count && i < 8192; i++) {
		CL.clSetKernelArg(kernel, i, sizeof buffer, &buffer);
		CL.clSetKernelArg(kernel, i, sizeof four, &four);
		CL.clSetKernelArg(kernel, i, 16, NULL);
	}
	CL.clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
	CL.clSetKernelArg(kernel, UINT32_MAX, sizeof four, &four);
	CL.clSetKernelArgSVMPointer(kernel, 0, NULL);
	CL.clSetKernelArgSVMPointer(kernel, 0, shared);
	CL.clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof shared, &shared);
	CL.clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, 0, NULL);
	size_t global[3] = {64, 2, 2}, local[3] = {8, 1, 1}, sub = 0;
	cl_event event = NULL;
	CL.clEnqueueNDRangeKernel(queue, kernel, 3, global, global, local, 0, NULL, NULL);
	if (CL.clEnqueueNDRangeKernel(queue, kernel, 1, NULL, global, NULL, 0, NULL, &event) == 0) {
		cl_ulong time;
		CL.clWaitForEvents(1, &event);
		CL.clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL);
		CL.clReleaseEvent(event);
		reached |= 4;
	}
	CL.clGetKernelSubGroupInfo(kernel, device, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, sizeof *local, local, sizeof sub, &sub, NULL);
	cl_kernel clone = CL.clCloneKernel(kernel, NULL);
	if (clone && CL.clReleaseKernel(clone) == 0)
		reached |= 8;
}

static void all_kernels(cl_program program) {
	cl_uint count = 0;
	if (CL.clCreateKernelsInProgram(program, 0, NULL, &count) != 0 || count == 0 || count > 65536)
		return;
	cl_kernel *all = calloc(count, sizeof *all);
	if (CL.clCreateKernelsInProgram(program, count, all, NULL) == 0)
		for (cl_uint i = 0; i < count; i++)
			reached |= CL.clReleaseKernel(all[i]) == 0 ? 16 : 0;
	free(all);
}

static void programs(cl_mem buffer) {
	const char *source = "kernel void k(global int *a, int b, local int *c) {}";
	cl_program program = CL.clCreateProgramWithSource(context, 1, &source, NULL, NULL);
	if (!program)
		return;
	CL.clBuildProgram(program, 0, NULL, "-w", NULL, NULL);
	read_all(program_query, program, OP_clGetProgramInfo);
	read_all(build_query, program, OP_clGetProgramBuildInfo);
	cl_kernel kernel = CL.clCreateKernel(program, "k", NULL);
	if (kernel) {
		kernel_calls(kernel, buffer);
		CL.clReleaseKernel(kernel);
	}
	all_kernels(program);
	binaries(program);
	CL.clCompileProgram(program, 0, NULL, "", 0, NULL, NULL, NULL, NULL);
	cl_program linked = CL.clLinkProgram(context, 0, NULL, "", 1, &program, NULL, NULL, NULL);
	if (linked && CL.clReleaseProgram(linked) == 0)
		reached |= 32;
	CL.clReleaseProgram(program);
}

static void transfers(cl_mem buffer) {
	unsigned char *bytes = malloc(256);
	cl_event event = NULL;
	CL.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 256, bytes, 0, NULL, NULL);
	if (CL.clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, 256, bytes, 0, NULL, &event) == 0) {
		CL.clWaitForEvents(1, &event);
		CL.clReleaseEvent(event);
	}
	void *map = CL.clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, 256, 0, NULL, NULL, NULL);
	if (map) {
		memset(map, 1, 256);
		reached |= 64;
		CL.clEnqueueUnmapMemObject(queue, buffer, map, 0, NULL, NULL);
	}
	CL.clFinish(queue);
	free(bytes);
}

static void images(cl_mem buffer) {
	cl_uint count = 0;
	if (CL.clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count) == 0 && count && count < (1 << 20)) {
		cl_image_format *all = malloc(count * sizeof *all);
		if (CL.clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, count, all, NULL) == 0)
			sink += all[count - 1].image_channel_order;
		free(all);
	}
	static const size_t widths[] = {4, SIZE_MAX, SIZE_MAX / 4, (size_t)1 << 62, (size_t)1 << 32};
	const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
	for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
		cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = widths[i], .image_height = widths[i]};
		cl_mem image = CL.clCreateImage(context, CL_MEM_READ_WRITE, &format, &d, NULL, NULL);
		if (!image)
			continue;
		size_t zero[3] = {0}, region[3] = {widths[i] < 4 ? widths[i] : 4, 1, 1}, last[3] = {widths[i] - 4, widths[i] - 1, 0}, row, slice;
		unsigned char *map = CL.clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, i ? last : zero, region, &row, &slice, 0, NULL, NULL, NULL);
		if (map) {
			memset(map, 1, 16);
			reached |= 128;
			CL.clEnqueueUnmapMemObject(queue, image, map, 0, NULL, NULL);
		}
		CL.clReleaseMemObject(image);
	}
	cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4, .image_row_pitch = 16, .mem_object = buffer};
	cl_mem image = CL.clCreateImage(context, CL_MEM_READ_WRITE, &format, &d, NULL, NULL);
	if (image && CL.clReleaseMemObject(image) == 0)
		reached |= 256;
}

static int has_no_svm(void) {
	cl_device_svm_capabilities svm;
	unsigned char byte;
	return CL.clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL) == 0 && svm == 0 &&
		CL.clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, &byte, 1, 0, NULL, NULL) == CL_INVALID_OPERATION;
}

static sem_t called;

static void CL_CALLBACK on_complete(cl_event event, cl_int status, void *user) {
	(void)event;
	*(cl_int *)user = status;
	sem_post(&called);
}

static cl_int wait_for_callback(cl_event event) {
	cl_int reported = 0, status;
	sem_init(&called, 0, 0);
	status = CL.clSetEventCallback(event, CL_COMPLETE, on_complete, &reported);
	while (status == 0 && sem_wait(&called) != 0)
		;
	return status ? status : reported;
}

/* Waits for a command of another queue that waits for the read, and is not ended by the order of its
 * own queue. */
static cl_int await_dependent(cl_mem buffer, cl_event read, int end, cl_event *later) {
	unsigned char bytes[16];
	cl_event middle = NULL;
	cl_int status = 0;
	switch (end) {
	case 5: /* a command of another queue */
		status = CL.clEnqueueMarkerWithWaitList(other, 1, &read, later);
		return status ? status : CL.clWaitForEvents(1, later);
	case 6: /* all commands of another queue */
		status = CL.clEnqueueBarrierWithWaitList(other, 1, &read, NULL);
		return status ? status : CL.clFinish(other);
	case 7: /* a later command of another queue */
		status = CL.clEnqueueBarrierWithWaitList(other, 1, &read, NULL);
		return status ? status : CL.clEnqueueReadBuffer(other, buffer, CL_TRUE, 64, sizeof bytes, bytes, 0, NULL, NULL);
	case 8: /* a command that waits for such a command */
		status = CL.clEnqueueMarkerWithWaitList(other, 1, &read, &middle);
		if (status == 0)
			status = CL.clEnqueueMarkerWithWaitList(unordered, 1, &middle, later);
		if (middle)
			CL.clReleaseEvent(middle);
		return status ? status : wait_for_callback(*later);
	case 9: /* what follows a barrier of a queue without an order */
		status = CL.clEnqueueBarrierWithWaitList(unordered, 0, NULL, NULL);
		if (status == 0)
			status = CL.clEnqueueFillBuffer(unordered, buffer, "x", 1, 192, 16, 0, NULL, later);
		return status ? status : CL.clWaitForEvents(1, later);
	default: /* a read that waits for it */
		return CL.clEnqueueReadBuffer(unordered, buffer, CL_TRUE, 64, sizeof bytes, bytes, 1, &read, NULL);
	}
}

/* The ways in which read_and_free waits for the end of a read. */
enum { ENDS = 11, AFTER_BARRIER = 9 };
static int only_end = -1; /* -1: all of them */
static unsigned ended_ways; /* those in which a read has ended, a bit each */

/* Frees the destination of a read when the read has ended by what the API says, and then exchanges
 * more messages with the worker. */
static void read_and_free(cl_mem buffer, int end) {
	unsigned char *bytes = malloc(64), other[16];
	cl_event read = NULL, later = NULL;
	cl_int status = CL.clEnqueueReadBuffer(end == AFTER_BARRIER ? unordered : queue, buffer, CL_FALSE, 0, 64, bytes, 0, NULL, &read);
	if (status == 0 && end == 1)
		status = CL.clFinish(queue);
	else if (status == 0 && end == 2)
		status = CL.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 64, sizeof other, other, 0, NULL, NULL);
	else if (status == 0 && end == 3 && (status = CL.clEnqueueMarkerWithWaitList(queue, 0, NULL, &later)) == 0)
		status = CL.clWaitForEvents(1, &later);
	else if (status == 0 && end == 4)
		status = wait_for_callback(read);
	else if (status == 0 && end >= 5)
		status = await_dependent(buffer, read, end, &later);
	else if (status == 0)
		status = CL.clWaitForEvents(1, &read);
	if (status == 0) {
		free(bytes);
		bytes = malloc(64); /* of other use now */
		if (bytes)
			memset(bytes, 'p', 64);
	}
	int ended = status == 0;
	for (int i = 0; i < 2; i++)
		status = CL.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 128, sizeof other, other, 0, NULL, NULL);
	ended_ways |= ended && status == 0 ? 1u << end : 0;
	if (ended_ways == (1u << ENDS) - 1)
		reached |= READ_ENDED;
	for (int i = 0; ended && bytes && i < 64; i++)
		if (bytes[i] != 'p')
			abort();
	if (read)
		CL.clReleaseEvent(read);
	if (later)
		CL.clReleaseEvent(later);
	if (ended)
		free(bytes); /* else the library may still write to it */
}

static void shared_memory(void) {
	shared = CL.clSVMAlloc(context, CL_MEM_READ_WRITE, 100, 64);
	unsigned char *p = CL.clSVMAlloc(context, CL_MEM_READ_WRITE, 300, 0);
	if ((uintptr_t)shared % 64 != 0 || (uintptr_t)p % sizeof(cl_long16) != 0)
		abort();
	if (!p) {
		reached |= has_no_svm() ? NO_SVM : 0;
		return;
	}
	CL.clEnqueueSVMMemFill(queue, p, "x", 1, 300, 0, NULL, NULL);
	if (CL.clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, p, 300, 0, NULL, NULL) == 0) {
		memset(p, 1, 300);
		CL.clEnqueueSVMUnmap(queue, p, 0, NULL, NULL);
		reached |= SVM;
	}
	unsigned char bytes[300];
	CL.clEnqueueSVMMemcpy(queue, CL_TRUE, bytes, p, sizeof bytes, 0, NULL, NULL);
	CL.clEnqueueSVMMemcpy(queue, CL_FALSE, p, bytes, sizeof bytes, 0, NULL, NULL);
	if (shared)
		CL.clEnqueueSVMMemcpy(queue, CL_FALSE, shared, p, 100, 0, NULL, NULL);
	void *pointers[] = {p};
	CL.clEnqueueSVMMigrateMem(queue, 1, (const void **)pointers, NULL, 0, 0, NULL, NULL);
	CL.clEnqueueSVMFree(queue, 1, pointers, NULL, NULL, 0, NULL, NULL);
	CL.clFinish(queue);
}

static void CL_CALLBACK on_error(const char *text, const void *info, size_t size, void *user) {
	(void)user;
	sink += strlen(text);
	for (size_t i = 0; i < size; i++)
		sink += ((const unsigned char *)info)[i];
}

static void run(void) {
	if (CL.clGetPlatformIDs(1, &platform, NULL) != 0)
		return;
	read_all(platform_query, platform, OP_clGetPlatformInfo);
	if (CL.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != 0)
		return;
	sub_devices(); /* before there is a context */
	read_all(device_query, device, OP_clGetDeviceInfo);
	read_list(device_query, device, 0x7fff); /* an extension's query: the worker answers */
	cl_ulong a, b;
	CL.clGetDeviceAndHostTimer(device, &a, &b);
	context = CL.clCreateContext(NULL, 1, &device, on_error, NULL, NULL);
	queue = context ? CL.clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, NULL) : NULL;
	other = queue ? CL.clCreateCommandQueue(context, device, 0, NULL) : NULL;
	unordered = other ? CL.clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, NULL) : NULL;
	cl_mem buffer = unordered ? CL.clCreateBuffer(context, CL_MEM_READ_WRITE, 256, NULL, NULL) : NULL;
	if (!buffer)
		return;
	cl_buffer_region part = {128, 64};
	cl_mem sub = CL.clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &part, NULL);
	if (sub)
		CL.clReleaseMemObject(sub);
	/* The errors that the specification orders first, where the device lacks the feature. */
	reached |= CL.clSetDefaultDeviceCommandQueue(context, device, NULL) == CL_INVALID_OPERATION ? 512 : 0;
	cl_int status = 0;
	reached |= !CL.clCreateProgramWithIL(context, NULL, 0, &status) && status == CL_INVALID_OPERATION ? 1024 : 0;
	transfers(buffer);
	for (int end = 0; end < ENDS; end++)
		if (only_end < 0 || end == only_end)
			read_and_free(buffer, end);
	images(buffer);
	shared_memory();
	programs(buffer);
	CL.clSVMFree(context, shared);
	CL.clReleaseMemObject(buffer);
	CL.clReleaseCommandQueue(queue);
	CL.clReleaseCommandQueue(other);
	CL.clReleaseCommandQueue(unordered);
	CL.clReleaseContext(context);
}

/* Returns the places that the program reaches with the worker of that line. */
static unsigned places(const char *line) {
	if (strncmp(line, "honest", 6) == 0)
		return ALL_PLACES;
	return strncmp(line, "older", 5) == 0 ? (ALL_PLACES & ~SVM) | NO_SVM : reached;
}

int main(int argc, char **argv) {
	char line[64];
	if (argc != 2)
		return 2;
	setenv("OUTBOARD_SOCKET", argv[1], 1);
	while (fgets(line, sizeof line, stdin)) {
		int status = 0;
		pid_t child = fork();
		if (child == 0) {
			alarm(60);
			(void)sscanf(line, "end %d", &only_end);
			run();
			exit(reached != places(line)); /* runs the library's destructor */
		}
		waitpid(child, &status, 0);
		if (status == 0)
			puts("ok");
		else
			printf("status %#x\n", (unsigned)status);
		fflush(stdout);
	}
	return 0;
}
