/* note.c: properties of single calls that are recorded beside their times: a queue's properties,
 * sizes of data, mapped memory. In a layer the data's sizes are added to those of the messages.
 * Layer: entry. */
#include "allocations.h"
#include "contents.h"
#include "entry.h"
#include "reply.h"
#include "request.h"

/* Returns 1 for a call of a layer that has succeeded. */
static int succeeded(const struct record_call *call) { return entry_sizes && !(call->head.flags & RECORD_FAILED); }

static void note_bulk(struct record_call *call, uint64_t forward, uint64_t backward) {
	if (!succeeded(call))
		return;
	call->forward += wire_padded(forward);
	call->backward += wire_padded(backward);
}

/* Called when a call that waits for commands has returned. */
static void note_wait(const struct record_call *call) {
	if (call->head.flags & RECORD_BLOCKING)
		entry_waited();
}

#define UNUSED(x) ((void)(x))

/* The bit of a queue's recorded properties that says that its creation waits for the driver. */
#define QUEUE_AWAITED (UINT64_C(1) << 63)

/* Returns 1 if the library waits for the driver's result: for other properties than those of a queue
 * for the host (calls/queue.c). */
static int queue_awaited(cl_device_id device, cl_command_queue_properties asked) {
	cl_command_queue_properties plain = 0;
	(void)entry_driver.clGetDeviceInfo(device, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, sizeof plain, &plain, NULL);
	return (asked & ~(plain & (CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE))) != 0;
}

/* Returns 1 if the library checks the call itself: the driver does not see it. */
static int queue_refused(cl_command_queue queue, const cl_int *status) {
	return !queue && status && (*status == CL_INVALID_CONTEXT || *status == CL_INVALID_DEVICE);
}

static void note_queue(struct record_call *call, cl_device_id device, cl_command_queue_properties asked, int unusual, int refused) {
	call->object = (uintptr_t)device;
	call->detail = asked & ~QUEUE_AWAITED;
	if (entry_sizes && !refused && (unusual || queue_awaited(device, asked)))
		call->detail |= QUEUE_AWAITED;
	entry_device(device);
}

void note_clCreateCommandQueue(struct record_call *call, cl_command_queue result, cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *errcode_ret) {
	UNUSED(context);
	note_queue(call, device, properties, 0, queue_refused(result, errcode_ret));
}

void note_clCreateCommandQueueWithProperties(struct record_call *call, cl_command_queue result, cl_context context, cl_device_id device, const cl_queue_properties *properties, cl_int *errcode_ret) {
	UNUSED(context);
	cl_command_queue_properties asked = 0;
	int unusual = 0;
	for (size_t i = 0; properties && properties[i]; i += 2) {
		if (properties[i] == CL_QUEUE_PROPERTIES)
			asked = properties[i + 1];
		else
			unusual = 1;
	}
	note_queue(call, device, asked, unusual, queue_refused(result, errcode_ret));
}

void entry_written(const struct record_call *call, cl_mem object) {
	if (succeeded(call))
		contents_written(object);
}

/* Adds an object with its size, in the unit of contents.h. A map need not read contents that are
 * undefined, or in the program's own memory. */
static void note_created(const struct record_call *call, cl_mem object, cl_mem_flags flags, uint64_t whole, const void *host_ptr) {
	if (succeeded(call))
		contents_created(object, flags, whole, !host_ptr || (flags & CL_MEM_USE_HOST_PTR));
}

/* A buffer over an allocation of shared virtual memory has its contents already. */
static int copied(cl_mem_flags flags, const void *host_ptr) {
	return host_ptr && ((flags & CL_MEM_COPY_HOST_PTR) || ((flags & CL_MEM_USE_HOST_PTR) && !allocations_contain(host_ptr)));
}

void note_clCreateBuffer(struct record_call *call, cl_mem result, cl_context context, cl_mem_flags flags, size_t size, void *host_ptr, cl_int *errcode_ret) {
	UNUSED(context), UNUSED(errcode_ret);
	note_bulk(call, copied(flags, host_ptr) ? size : 0, 0);
	note_created(call, result, flags, size, host_ptr);
}

void note_clCreateBufferWithProperties(struct record_call *call, cl_mem result, cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, size_t size, void *host_ptr, cl_int *errcode_ret) {
	UNUSED(context), UNUSED(properties), UNUSED(errcode_ret);
	note_bulk(call, copied(flags, host_ptr) ? size : 0, 0);
	note_created(call, result, flags, size, host_ptr);
}

void note_clCreateSubBuffer(struct record_call *call, cl_mem result, cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type buffer_create_type, const void *buffer_create_info, cl_int *errcode_ret) {
	UNUSED(buffer_create_type), UNUSED(buffer_create_info), UNUSED(errcode_ret);
	if (succeeded(call))
		contents_part(result, buffer, flags);
}

/* Records which formats the library must know: it queries them once for each context, access and type
 * of image (calls/format.c). */
static void note_formats(struct record_call *call, cl_context context, cl_mem_flags flags, cl_mem_object_type type) {
	static const cl_mem_flags access = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
	uint64_t key[] = {(uintptr_t)context, flags & (access | CL_MEM_KERNEL_READ_AND_WRITE), type};
	if (!(flags & access))
		key[1] |= CL_MEM_READ_WRITE;
	call->detail = entry_hash(key, sizeof key);
}

static uint64_t volume(const size_t *region) { return region ? (uint64_t)region[0] * region[1] * region[2] : 0; }

static void note_image(struct record_call *call, cl_context context, cl_mem image, cl_mem_flags flags, const cl_image_desc *d, const void *host_ptr) {
	if (!succeeded(call) || !d)
		return;
	note_formats(call, context, flags, d->image_type);
	size_t layers = d->image_array_size ? d->image_array_size : 1;
	size_t region[3] = {d->image_width, d->image_height ? d->image_height : 1, d->image_depth ? d->image_depth : layers};
	if (copied(flags, host_ptr))
		note_bulk(call, entry_image_size(image, region), 0);
	if (d->mem_object)
		contents_part(image, d->mem_object, flags);
	else
		note_created(call, image, flags, volume(region), host_ptr);
}

void note_clCreateImage(struct record_call *call, cl_mem result, cl_context context, cl_mem_flags flags, const cl_image_format *image_format, const cl_image_desc *image_desc, void *host_ptr, cl_int *errcode_ret) {
	UNUSED(image_format), UNUSED(errcode_ret);
	note_image(call, context, result, flags, image_desc, host_ptr);
}

void note_clCreateImageWithProperties(struct record_call *call, cl_mem result, cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, const cl_image_format *image_format, const cl_image_desc *image_desc, void *host_ptr, cl_int *errcode_ret) {
	UNUSED(properties), UNUSED(image_format), UNUSED(errcode_ret);
	note_image(call, context, result, flags, image_desc, host_ptr);
}

void note_clCreateImage2D(struct record_call *call, cl_mem result, cl_context context, cl_mem_flags flags, const cl_image_format *image_format, size_t image_width, size_t image_height, size_t image_row_pitch, void *host_ptr, cl_int *errcode_ret) {
	UNUSED(image_format), UNUSED(image_row_pitch), UNUSED(errcode_ret);
	note_image(call, context, result, flags, &(cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = image_width, .image_height = image_height}, host_ptr);
}

void note_clCreateImage3D(struct record_call *call, cl_mem result, cl_context context, cl_mem_flags flags, const cl_image_format *image_format, size_t image_width, size_t image_height, size_t image_depth, size_t image_row_pitch, size_t image_slice_pitch, void *host_ptr, cl_int *errcode_ret) {
	UNUSED(image_format), UNUSED(image_row_pitch), UNUSED(image_slice_pitch), UNUSED(errcode_ret);
	note_image(call, context, result, flags, &(cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = image_width, .image_height = image_height, .image_depth = image_depth}, host_ptr);
}

void note_clCreatePipe(struct record_call *call, cl_mem result, cl_context context, cl_mem_flags flags, cl_uint pipe_packet_size, cl_uint pipe_max_packets, const cl_pipe_properties *properties, cl_int *errcode_ret) {
	UNUSED(context), UNUSED(pipe_packet_size), UNUSED(pipe_max_packets), UNUSED(properties), UNUSED(errcode_ret);
	if (succeeded(call))
		contents_created(result, flags, 0, 0);
}

void note_clCreateProgramWithSource(struct record_call *call, cl_program result, cl_context context, cl_uint count, const char **strings, const size_t *lengths, cl_int *errcode_ret) {
	UNUSED(context), UNUSED(errcode_ret);
	uint64_t size = 0;
	for (cl_uint i = 0; entry_sizes && result && i < count; i++)
		size += lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
	note_bulk(call, size, 0);
}

/* The driver refuses a binary after it was sent. The reply brings what the driver knows about the program. */
void note_clCreateProgramWithBinary(struct record_call *call, cl_program result, cl_context context, cl_uint num_devices, const cl_device_id *device_list, const size_t *lengths, const unsigned char **binaries, cl_int *binary_status, cl_int *errcode_ret) {
	UNUSED(context), UNUSED(device_list), UNUSED(binaries), UNUSED(binary_status);
	int sent = result || (errcode_ret && *errcode_ret == CL_INVALID_BINARY);
	if (entry_sizes && sent && lengths && num_devices > 0)
		call->forward += wire_padded(lengths[0]);
	if (!succeeded(call))
		return;
	static const struct program_sources none;
	call->backward += facts_size(result, &none);
}

/* Adds what a build sends and receives beside the program's own arguments. count programs have headers,
 * or parts to link. */
static void note_build(struct record_call *call, cl_program program, const char *options, cl_uint count, const cl_program *parts) {
	struct program_sources sources = sources_of(program, count, parts);
	size_t own = 0;
	if (entry_driver.clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &own) == CL_SUCCESS && own > 1)
		call->forward += request_added(options, &sources); /* it is not linked, nor made of a binary */
	call->backward = 32 + 8 + facts_size(program, &sources);
	sources_free(&sources);
}

/* Returns 1 if the call has had its reply from a compiler, which also says why a build failed. */
static int built(cl_int result, const void *notify) {
	return entry_sizes && !notify && /* else the build may go on */
		(result == CL_SUCCESS || result == CL_BUILD_PROGRAM_FAILURE || result == CL_COMPILE_PROGRAM_FAILURE);
}

void note_clBuildProgram(struct record_call *call, cl_int result, cl_program program, cl_uint num_devices, const cl_device_id *device_list, const char *options, void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data) {
	UNUSED(num_devices), UNUSED(device_list), UNUSED(user_data);
	if (built(result, (const void *)pfn_notify))
		note_build(call, program, options, 0, NULL);
}

void note_clCompileProgram(struct record_call *call, cl_int result, cl_program program, cl_uint num_devices, const cl_device_id *device_list, const char *options, cl_uint num_input_headers, const cl_program *input_headers, const char **header_include_names, void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data) {
	UNUSED(num_devices), UNUSED(device_list), UNUSED(user_data);
	if (!built(result, (const void *)pfn_notify))
		return;
	call->forward += request_names(num_input_headers, header_include_names);
	note_build(call, program, options, num_input_headers, input_headers);
}

void note_clLinkProgram(struct record_call *call, cl_program result, cl_context context, cl_uint num_devices, const cl_device_id *device_list, const char *options, cl_uint num_input_programs, const cl_program *input_programs, void(CL_CALLBACK *pfn_notify)(cl_program, void *), void *user_data, cl_int *errcode_ret) {
	UNUSED(context), UNUSED(num_devices), UNUSED(device_list), UNUSED(user_data), UNUSED(errcode_ret);
	if (succeeded(call) && !pfn_notify)
		note_build(call, result, options, num_input_programs, input_programs);
}

/* Returns the size of the binaries themselves, not of the addresses to which they were copied. */
static uint64_t binaries_size(cl_program program) {
	size_t sizes[64], size = 0;
	uint64_t all = 0;
	if (entry_driver.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, &size) != CL_SUCCESS || size > sizeof sizes)
		return 0;
	for (size_t i = 0; i < size / sizeof *sizes; i++)
		all += sizes[i];
	return all;
}

void note_clGetProgramInfo(struct record_call *call, cl_int result, cl_program program, cl_program_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	UNUSED(param_value_size), UNUSED(param_value_size_ret);
	call->object = (uintptr_t)program;
	if (!entry_sizes || result != CL_SUCCESS || param_name != CL_PROGRAM_BINARIES)
		return;
	call->backward = 32 + 8;
	if (param_value)
		note_bulk(call, 0, binaries_size(program));
}

void note_clGetSupportedImageFormats(struct record_call *call, cl_int result, cl_context context, cl_mem_flags flags, cl_mem_object_type image_type, cl_uint num_entries, cl_image_format *image_formats, cl_uint *num_image_formats) {
	UNUSED(image_formats);
	note_formats(call, context, flags, image_type);
	if (!entry_sizes || result != CL_SUCCESS)
		return;
	call->forward = 32 + 8 * 3;
	call->backward = 32 + 8 + sizeof(cl_image_format) * (num_image_formats ? *num_image_formats : num_entries);
}

void note_clCreateKernel(struct record_call *call, cl_kernel result, cl_program program, const char *kernel_name, cl_int *errcode_ret) {
	UNUSED(program), UNUSED(kernel_name), UNUSED(errcode_ret);
	if (succeeded(call))
		contents_kernel(result);
}

/* Returns the size of the message that creates a kernel. */
static uint64_t creation_size(cl_kernel kernel) {
	size_t size = 0;
	if (entry_driver.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, NULL, &size) != CL_SUCCESS || size == 0)
		return 0;
	return 48 + 8 + wire_padded(size - 1);
}

/* The library sends a message for each of the kernels. */
void note_clCreateKernelsInProgram(struct record_call *call, cl_int result, cl_program program, cl_uint num_kernels, cl_kernel *kernels, cl_uint *num_kernels_ret) {
	UNUSED(result), UNUSED(num_kernels_ret);
	size_t count = 0;
	if (!kernels || !succeeded(call) || entry_driver.clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL) != CL_SUCCESS)
		return;
	for (size_t i = 0; i < count && i < num_kernels; i++) {
		contents_kernel(kernels[i]);
		call->forward += creation_size(kernels[i]);
	}
}

void note_clSetKernelArg(struct record_call *call, cl_int result, cl_kernel kernel, cl_uint arg_index, size_t arg_size, const void *arg_value) {
	UNUSED(result);
	call->object = (uintptr_t)kernel;
	if (!entry_sizes)
		return;
	call->serial = arg_index; /* there is no message with a serial to record */
	call->detail = entry_hash(arg_value, arg_size);
	cl_mem object = NULL; /* any value of that size may be one */
	if (arg_value && arg_size == sizeof object)
		memcpy(&object, arg_value, sizeof object);
	uint64_t number = succeeded(call) ? contents_argument(kernel, arg_index, object) : 0;
	if (number)
		call->detail = ~entry_hash(&number, sizeof number); /* the driver reuses addresses */
	else
		note_bulk(call, arg_value ? arg_size : 0, 0); /* a handle has a field of its own */
}

void note_clFinish(struct record_call *call, cl_int result, cl_command_queue command_queue) {
	UNUSED(call), UNUSED(result), UNUSED(command_queue);
	entry_waited();
}

void note_clWaitForEvents(struct record_call *call, cl_int result, cl_uint num_events, const cl_event *event_list) {
	UNUSED(call), UNUSED(result), UNUSED(num_events), UNUSED(event_list);
	entry_waited();
}

/* A poll of an event that is complete is a notice of that; any other one has the library watch the event. */
void note_clGetEventInfo(struct record_call *call, cl_int result, cl_event event, cl_event_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	UNUSED(param_value_size_ret);
	cl_int status;
	if (result != CL_SUCCESS || param_name != CL_EVENT_COMMAND_EXECUTION_STATUS || !param_value || param_value_size < sizeof status)
		return;
	memcpy(&status, param_value, sizeof status);
	call->event = (uintptr_t)event;
	if (status <= CL_COMPLETE) {
		call->head.flags |= RECORD_NOTICE;
		entry_waited();
	}
}

/* The notice is recorded when the callback is called (callback.c). */
void note_clSetEventCallback(struct record_call *call, cl_int result, cl_event event, cl_int command_exec_callback_type, void(CL_CALLBACK *pfn_notify)(cl_event, cl_int, void *), void *user_data) {
	UNUSED(command_exec_callback_type), UNUSED(pfn_notify), UNUSED(user_data);
	if (result == CL_SUCCESS)
		call->event = (uintptr_t)event;
}

#define WAITS_AND_EVENT cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event
#define UNUSED_WAITS UNUSED(num_events_in_wait_list), UNUSED(event_wait_list), UNUSED(event)

void note_clEnqueueReadBuffer(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read, size_t offset, size_t size, void *ptr, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(buffer), UNUSED(blocking_read), UNUSED(offset), UNUSED(ptr), UNUSED_WAITS;
	note_bulk(call, 0, size);
	note_wait(call);
}

void note_clEnqueueReadBufferRect(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read, const size_t *buffer_origin, const size_t *host_origin, const size_t *region, size_t buffer_row_pitch, size_t buffer_slice_pitch, size_t host_row_pitch, size_t host_slice_pitch, void *ptr, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(buffer), UNUSED(blocking_read), UNUSED(buffer_origin), UNUSED(host_origin), UNUSED(buffer_row_pitch);
	UNUSED(buffer_slice_pitch), UNUSED(host_row_pitch), UNUSED(host_slice_pitch), UNUSED(ptr), UNUSED_WAITS;
	note_bulk(call, 0, volume(region));
	note_wait(call);
}

void note_clEnqueueReadImage(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_mem image, cl_bool blocking_read, const size_t *origin, const size_t *region, size_t row_pitch, size_t slice_pitch, void *ptr, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(blocking_read), UNUSED(origin), UNUSED(row_pitch), UNUSED(slice_pitch), UNUSED(ptr), UNUSED_WAITS;
	if (entry_sizes && result == CL_SUCCESS)
		note_bulk(call, 0, entry_image_size(image, region));
	note_wait(call);
}

void note_clEnqueueWriteBuffer(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_write, size_t offset, size_t size, const void *ptr, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(buffer), UNUSED(blocking_write), UNUSED(offset), UNUSED(ptr), UNUSED_WAITS;
	note_bulk(call, size, 0);
	note_wait(call);
}

void note_clEnqueueWriteBufferRect(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_write, const size_t *buffer_origin, const size_t *host_origin, const size_t *region, size_t buffer_row_pitch, size_t buffer_slice_pitch, size_t host_row_pitch, size_t host_slice_pitch, const void *ptr, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(buffer), UNUSED(blocking_write), UNUSED(buffer_origin), UNUSED(host_origin), UNUSED(buffer_row_pitch);
	UNUSED(buffer_slice_pitch), UNUSED(host_row_pitch), UNUSED(host_slice_pitch), UNUSED(ptr), UNUSED_WAITS;
	note_bulk(call, volume(region), 0);
	note_wait(call);
}

void note_clEnqueueWriteImage(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_mem image, cl_bool blocking_write, const size_t *origin, const size_t *region, size_t input_row_pitch, size_t input_slice_pitch, const void *ptr, WAITS_AND_EVENT) {
	UNUSED(command_queue), UNUSED(blocking_write), UNUSED(origin), UNUSED(input_row_pitch), UNUSED(input_slice_pitch), UNUSED(ptr), UNUSED_WAITS;
	if (entry_sizes && result == CL_SUCCESS)
		note_bulk(call, entry_image_size(image, region), 0);
	note_wait(call);
}

/* A map is recorded with its address, its flags, and its size in bytes; an unmap with the
 * address. */
static void note_map(struct record_call *call, const void *result, cl_map_flags flags, uint64_t size) {
	call->object = (uintptr_t)result;
	call->detail = flags;
	if (entry_sizes) {
		call->forward = 32 + 8 * 6;
		call->backward = wire_padded(size);
	}
	note_wait(call);
}

/* Sets RECORD_CURRENT for a map that would read nothing. region is in the unit of contents.h. */
static void note_current(struct record_call *call, cl_mem object, const void *result, cl_map_flags flags, uint64_t region) {
	if (succeeded(call) && contents_mapped(object, result, flags, (call->head.flags & RECORD_BLOCKING) != 0, region))
		call->head.flags |= RECORD_CURRENT;
}

void note_clEnqueueMapBuffer(struct record_call *call, void *result, cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_map, cl_map_flags map_flags, size_t offset, size_t size, WAITS_AND_EVENT, cl_int *errcode_ret) {
	UNUSED(command_queue), UNUSED(blocking_map), UNUSED(offset), UNUSED_WAITS, UNUSED(errcode_ret);
	note_map(call, result, map_flags, size);
	note_current(call, buffer, result, map_flags, size);
}

void note_clEnqueueMapImage(struct record_call *call, void *result, cl_command_queue command_queue, cl_mem image, cl_bool blocking_map, cl_map_flags map_flags, const size_t *origin, const size_t *region, size_t *image_row_pitch, size_t *image_slice_pitch, WAITS_AND_EVENT, cl_int *errcode_ret) {
	UNUSED(command_queue), UNUSED(blocking_map), UNUSED(origin), UNUSED(image_row_pitch), UNUSED(image_slice_pitch), UNUSED_WAITS, UNUSED(errcode_ret);
	note_map(call, result, map_flags, entry_sizes && result ? entry_image_size(image, region) : 0);
	note_current(call, image, result, map_flags, volume(region));
}

void note_clEnqueueUnmapMemObject(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_mem memobj, void *mapped_ptr, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(memobj), UNUSED_WAITS;
	call->object = (uintptr_t)mapped_ptr;
	if (succeeded(call))
		contents_unmapped(mapped_ptr);
}

void note_clEnqueueNDRangeKernel(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim, const size_t *global_work_offset, const size_t *global_work_size, const size_t *local_work_size, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(work_dim), UNUSED(global_work_offset), UNUSED(global_work_size), UNUSED(local_work_size), UNUSED_WAITS;
	if (succeeded(call))
		contents_launched(kernel);
}

void note_clEnqueueTask(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_kernel kernel, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED_WAITS;
	if (succeeded(call))
		contents_launched(kernel);
}

void note_clEnqueueMigrateMemObjects(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_uint num_mem_objects, const cl_mem *mem_objects, cl_mem_migration_flags flags, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED_WAITS;
	int undefined = succeeded(call) && (flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED);
	for (cl_uint i = 0; undefined && i < num_mem_objects; i++)
		entry_written(call, mem_objects[i]);
}

/* ---- shared virtual memory: its messages are those of buffers (calls/svm.c). The sizes below are
 * without the message's head, which the reader of the recording adds. */

enum {
	ALLOC_WORDS = 8 * 6,
	TRANSFER_WORDS = 8 * 7,
	COPY_WORDS = 8 * 8,
	FILL_WORDS = 8 * 7,
	ARGUMENT_WORDS = 8 * 7,
};

/* Messages, with their heads. */
enum {
	USER_EVENT_SIZE = 32 + 8 * 2,
	MARKER_SIZE = 32 + 8 * 3,
	WATCH_SIZE = 32 + 8,
};

/* The worker chooses the address: the call waits for it. */
void note_clSVMAlloc(struct record_call *call, void *result, cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
	UNUSED(context), UNUSED(flags), UNUSED(alignment);
	if (!succeeded(call))
		return;
	allocations_add(result, size);
	call->head.flags |= RECORD_BLOCKING;
	call->forward = ALLOC_WORDS;
	call->backward = 32 + 8;
}

void note_clSVMFree(struct record_call *call, cl_context context, void *svm_pointer) {
	UNUSED(context);
	if (succeeded(call) && allocations_remove(svm_pointer))
		call->object = (uintptr_t)svm_pointer;
}

/* The program's own process frees the memory, between a marker that it watches, which is counted by the
 * reader of the recording without its wait list, and another one for which it has a user event
 * (calls/hostwork.c). */
void note_clEnqueueSVMFree(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_uint num_svm_pointers, void **svm_pointers, PFN_clEnqueueSVMFree pfn_free_func, void *user_data, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(user_data), UNUSED(event_wait_list), UNUSED(event);
	if (succeeded(call))
		call->forward = 8 * (uint64_t)num_events_in_wait_list + USER_EVENT_SIZE + MARKER_SIZE + 8 + WATCH_SIZE;
	for (cl_uint i = 0; succeeded(call) && !pfn_free_func && i < num_svm_pointers; i++)
		(void)allocations_remove(svm_pointers[i]);
}

void note_clEnqueueSVMMemcpy(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_bool blocking_copy, void *dst_ptr, const void *src_ptr, size_t size, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(blocking_copy), UNUSED_WAITS;
	int to = succeeded(call) && allocations_contain(dst_ptr), from = succeeded(call) && allocations_contain(src_ptr);
	if (to && from)
		call->forward = COPY_WORDS;
	else if (to || from)
		call->forward = TRANSFER_WORDS;
	if (to != from)
		note_bulk(call, to ? size : 0, from ? size : 0);
	if (from && !to && (call->head.flags & RECORD_BLOCKING))
		call->backward += 32;
	note_wait(call);
}

void note_clEnqueueSVMMemFill(struct record_call *call, cl_int result, cl_command_queue command_queue, void *svm_ptr, const void *pattern, size_t pattern_size, size_t size, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(svm_ptr), UNUSED(pattern), UNUSED(size), UNUSED_WAITS;
	note_bulk(call, FILL_WORDS + pattern_size, 0);
}

void note_clEnqueueSVMMap(struct record_call *call, cl_int result, cl_command_queue command_queue, cl_bool blocking_map, cl_map_flags flags, void *svm_ptr, size_t size, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED(blocking_map), UNUSED_WAITS;
	note_map(call, svm_ptr, flags, size);
}

void note_clEnqueueSVMUnmap(struct record_call *call, cl_int result, cl_command_queue command_queue, void *svm_ptr, WAITS_AND_EVENT) {
	UNUSED(result), UNUSED(command_queue), UNUSED_WAITS;
	call->object = (uintptr_t)svm_ptr;
}

void note_clSetKernelArgSVMPointer(struct record_call *call, cl_int result, cl_kernel kernel, cl_uint arg_index, const void *arg_value) {
	UNUSED(result);
	call->object = (uintptr_t)kernel;
	if (!entry_sizes)
		return;
	call->serial = arg_index;
	call->detail = ~entry_hash(&arg_value, sizeof arg_value); /* not that of the same bytes by value */
	note_bulk(call, ARGUMENT_WORDS, 0);
	if (succeeded(call))
		(void)contents_argument(kernel, arg_index, NULL);
}

void note_clSetKernelExecInfo(struct record_call *call, cl_int result, cl_kernel kernel, cl_kernel_exec_info param_name, size_t param_value_size, const void *param_value) {
	UNUSED(result), UNUSED(kernel), UNUSED(param_name);
	note_bulk(call, param_value ? param_value_size : 0, 0);
}
