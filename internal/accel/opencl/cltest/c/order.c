// Which error must be reported when several apply: one case for each function of the API
// description (TestOrderIsWhole). A row lists the function's faults in the order in which the
// specification lists the errors of the function; each fault alone must give its error, and of each
// pair of faults the first listed must be reported. Faults of the same argument are not combined.
#include "clt.h"

struct fault {
	int argument;
	cl_int code;
};

static unsigned faults; // active faults, by position in the row
#define BAD(fault, wrong, right) ((faults & 1u << (fault)) ? (wrong) : (right))

static cl_context context, other;
static cl_device_id device;
static cl_command_queue queue;
static cl_mem buffer, foreign, unreadable, unwritable; // restricted in the host's access
static cl_mem image, foreign_image, unreadable_image, unwritable_image, other_format;
static cl_sampler sampler;
static cl_program program, fresh; // built and not built
static cl_kernel kernel, bare, foreign_kernel; // with all arguments, without, of the other context
static cl_event event, user, foreign_event;
static unsigned char bytes[4096];
static void *shared; // virtual memory, NULL where the device has none
static const size_t zeros[3], ones[3] = {1, 1, 1}, huge[3] = {SIZE_MAX / 2, 1, 1};
static const cl_image_format rgba = {CL_RGBA, CL_UNORM_INT8}, no_format = {1, 1};
static const cl_image_desc flat = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
static const cl_image_desc shapeless = {.image_type = 1, .image_width = 4, .image_height = 4};
static const char *source = "kernel void k(global int *a, int b) { a[get_global_id(0)] = b; }";
static const cl_image_desc vast = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = (size_t)1 << 40, .image_height = 4};
static const cl_buffer_region part = {0, 16}, outside = {32, 64}, empty = {0, 0}, odd = {1, 16};
static const cl_context_properties no_platform[] = {CL_CONTEXT_PLATFORM, 0, 0}, no_property[] = {0x7777, 1, 0};
static const cl_queue_properties no_queue[] = {0x7777, 1, 0};
static const cl_mem_properties no_mem[] = {0x7777, 1, 0};
static const cl_sampler_properties no_sampler[] = {0x7777, 1, 0};
static const cl_device_partition_property partition[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
static const cl_device_id none;
static const cl_mem no_mems[1];
static const cl_event no_events[1];
static const cl_program no_programs[1];
static const char *header_names[] = {"h"}, *no_source[1];
static cl_ulong times[2];
static size_t pitches[2];
static const unsigned char not_a_binary[8], *binaries[1] = {not_a_binary}, *no_binaries[1];
static const size_t lengths[1] = {8};

// WRONG is an invalid handle of the type: over a borrowed device a live object of another kind.
// PoCL crashes on such objects, so it gets NULL.
#define WRONG(type) ((type)(getenv("OUTBOARD_SOCKET") ? _Generic((type)0, cl_event: (void *)context, default: (void *)user) : NULL))

static cl_mem new_image(cl_context in, cl_mem_flags flags, const cl_image_format *format) {
	cl_int code;
	cl_mem made = clCreateImage(in, flags, format, &flat, NULL, &code);
	MUST(code);
	return made;
}

// notify_program is never called.
static void CL_CALLBACK notify_program(cl_program p, void *data) { (void)p, (void)data; }

static void prepare_memory(void) {
	static const cl_image_format red = {CL_R, CL_UNORM_INT8};
	buffer = clt_buffer(CL_MEM_READ_WRITE, 64, NULL);
	unreadable = clt_buffer(CL_MEM_HOST_WRITE_ONLY, 64, NULL);
	unwritable = clt_buffer(CL_MEM_HOST_READ_ONLY, 64, NULL);
	cl_int code;
	foreign = clCreateBuffer(other, CL_MEM_READ_WRITE, 64, NULL, &code);
	MUST(code);
	image = new_image(context, CL_MEM_READ_WRITE, &rgba);
	other_format = new_image(context, CL_MEM_READ_WRITE, &red);
	unreadable_image = new_image(context, CL_MEM_HOST_WRITE_ONLY, &rgba);
	unwritable_image = new_image(context, CL_MEM_HOST_READ_ONLY, &rgba);
	foreign_image = new_image(other, CL_MEM_READ_WRITE, &rgba);
}

static void prepare_kernels(void) {
	static const int three = 3;
	cl_int code;
	program = clt_build(source, "-cl-kernel-arg-info");
	fresh = clCreateProgramWithSource(context, 1, &source, NULL, &code);
	MUST(code);
	bare = clt_kernel(program, "k");
	kernel = clt_kernel(program, "k");
	MUST(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
	MUST(clSetKernelArg(kernel, 1, sizeof three, &three));
	foreign_kernel = clt_kernel(clt_build_in(other, source, ""), "k");
	MUST(clSetKernelArg(foreign_kernel, 0, sizeof foreign, &foreign));
	MUST(clSetKernelArg(foreign_kernel, 1, sizeof three, &three));
}

static void prepare(void) {
	if (context)
		return;
	device = clt_device();
	context = clt_context();
	other = clt_new_context();
	queue = clt_queue();
	prepare_memory();
	prepare_kernels();
	cl_device_svm_capabilities svm = 0;
	if (clt_version() >= 20 && clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL) == CL_SUCCESS && svm)
		shared = clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 0);
	sampler = clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, NULL);
	foreign_event = clCreateUserEvent(other, NULL);
	user = clCreateUserEvent(context, NULL);
	MUST(clSetUserEventStatus(user, CL_COMPLETE));
	MUST(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
	MUST(clFinish(queue));
}

static void check_pair(cl_int (*call)(void), const struct fault *row, size_t a, size_t b) {
	faults = 1u << a | 1u << b;
	cl_int code = call();
	faults = 0;
	if (a == b)
		clt_code(code, "%zu", a);
	else
		clt_code(code, "%zu, %zu", a, b);
	if (code != row[a].code)
		clt_fail(__FILE__, __LINE__, "faults %zu and %zu: %s, due is %s", a, b, clt_name(code), clt_name(row[a].code));
}

static void check_row(cl_int (*call)(void), const struct fault *row, size_t count) {
	prepare();
	for (size_t a = 0; a < count; a++)
		for (size_t b = a; b < count; b++)
			if (a == b || row[a].argument != row[b].argument)
				check_pair(call, row, a, b);
}

// ORDER is a row: the call, which stores its error in code, and the faults of the call as
// {argument, error}.
#define ORDER(function, call, ...) \
	static cl_int call_##function(void) { \
		cl_int code = CL_SUCCESS; \
		call; \
		return code; \
	} \
	static void order_##function(void) { \
		static const struct fault row[] = {__VA_ARGS__}; \
		check_row(call_##function, row, sizeof row / sizeof *row); \
	}

// INFO is the row of a query that takes an object and the name of a value.
#define INFO(function, type, object, invalid) \
	ORDER(function, code = function(BAD(0, WRONG(type), object), BAD(1, 0xffff, BAD(2, 0, 0xffff)), 8, bytes, NULL), {0, invalid}, {1, CL_INVALID_VALUE})

// A wait list of no events, with an invalid event, and with an event of another context.
#define WAITS(none, alien) BAD(none, 1, BAD(alien, 1, 0)), BAD(none, NULL, BAD(alien, alien_list(), NULL)), NULL

static const cl_event *alien_list(void) { return &foreign_event; }

// The loader dereferences the devices of clCreateContext, so they can't be invalid pointers.
static const cl_device_id *no_device(void) {
	static cl_device_id list[1];
	list[0] = WRONG(cl_device_id);
	return list;
}

// The loader requires a platform in the list.
static const cl_context_properties *no_typed_property(void) {
	static cl_context_properties list[] = {CL_CONTEXT_PLATFORM, 0, 0x7777, 1, 0};
	list[1] = (cl_context_properties)clt_platform();
	return list;
}

static const cl_event *two_contexts(void) {
	static cl_event list[2];
	list[0] = event;
	list[1] = foreign_event;
	return list;
}

// ---- devices and contexts

ORDER(clGetPlatformIDs, code = clGetPlatformIDs(BAD(0, 0, 1), BAD(1, NULL, (cl_platform_id *)bytes), NULL), {0, CL_INVALID_VALUE}, {0, CL_INVALID_VALUE})
INFO(clGetPlatformInfo, cl_platform_id, clt_platform(), CL_INVALID_PLATFORM)
ORDER(clGetDeviceIDs, code = clGetDeviceIDs(BAD(0, WRONG(cl_platform_id), clt_platform()), BAD(1, 0, CL_DEVICE_TYPE_ALL), BAD(2, 0, 1), (cl_device_id *)bytes, NULL),
      {0, CL_INVALID_PLATFORM}, {1, CL_INVALID_DEVICE_TYPE}, {2, CL_INVALID_VALUE})
INFO(clGetDeviceInfo, cl_device_id, device, CL_INVALID_DEVICE)
ORDER(clCreateSubDevices, code = clCreateSubDevices(BAD(0, WRONG(cl_device_id), device), BAD(1, NULL, partition), 1, BAD(2, NULL, (cl_device_id *)bytes), NULL),
      {0, CL_INVALID_DEVICE}, {1, CL_INVALID_VALUE})
// No borrowed device can replace its default queue: the queue need not be checked.
ORDER(clSetDefaultDeviceCommandQueue,
      code = clSetDefaultDeviceCommandQueue(BAD(0, WRONG(cl_context), context), BAD(1, NULL, device), BAD(3, NULL, queue)), {0, CL_INVALID_CONTEXT},
      {1, CL_INVALID_DEVICE}, {2, CL_INVALID_OPERATION}, {3, CL_INVALID_OPERATION})
ORDER(clGetDeviceAndHostTimer, code = clGetDeviceAndHostTimer(BAD(0, WRONG(cl_device_id), device), BAD(1, NULL, times), BAD(2, NULL, times + 1)),
      {0, CL_INVALID_DEVICE}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE})
ORDER(clGetHostTimer, code = clGetHostTimer(BAD(0, WRONG(cl_device_id), device), BAD(1, NULL, times)), {0, CL_INVALID_DEVICE}, {1, CL_INVALID_VALUE})
ORDER(clCreateContext,
      clCreateContext(BAD(0, no_platform, BAD(1, no_property, NULL)), 1, BAD(3, no_device(), &device), NULL, BAD(2, bytes, NULL), &code),
      {0, CL_INVALID_PLATFORM}, {0, CL_INVALID_PROPERTY}, {2, CL_INVALID_VALUE}, {3, CL_INVALID_DEVICE})
ORDER(clCreateContextFromType, clCreateContextFromType(BAD(0, no_platform, BAD(1, no_typed_property(), NULL)), BAD(3, 0, CL_DEVICE_TYPE_ALL), NULL, BAD(2, bytes, NULL), &code),
      {0, CL_INVALID_PLATFORM}, {0, CL_INVALID_PROPERTY}, {2, CL_INVALID_VALUE}, {3, CL_INVALID_DEVICE_TYPE})
INFO(clGetContextInfo, cl_context, context, CL_INVALID_CONTEXT)
ORDER(clSetContextDestructorCallback, code = clSetContextDestructorCallback(BAD(0, WRONG(cl_context), context), NULL, NULL), {0, CL_INVALID_CONTEXT})

// ---- queues

ORDER(clCreateCommandQueueWithProperties,
      clCreateCommandQueueWithProperties(BAD(0, WRONG(cl_context), context), BAD(1, NULL, device), BAD(2, no_queue, NULL), &code), {0, CL_INVALID_CONTEXT},
      {1, CL_INVALID_DEVICE}, {2, CL_INVALID_VALUE})
ORDER(clCreateCommandQueue, clCreateCommandQueue(BAD(0, WRONG(cl_context), context), BAD(1, NULL, device), BAD(2, 1ul << 40, 0), &code), {0, CL_INVALID_CONTEXT},
      {1, CL_INVALID_DEVICE}, {2, CL_INVALID_VALUE})
INFO(clGetCommandQueueInfo, cl_command_queue, queue, CL_INVALID_COMMAND_QUEUE)

// ---- memory objects

ORDER(clCreateBuffer, clCreateBuffer(BAD(0, WRONG(cl_context), context), BAD(1, 1ul << 40, 0), BAD(2, 0, 64), BAD(3, bytes, NULL), &code), {0, CL_INVALID_CONTEXT},
      {1, CL_INVALID_VALUE}, {2, CL_INVALID_BUFFER_SIZE}, {3, CL_INVALID_HOST_PTR})
ORDER(clCreateBufferWithProperties,
      clCreateBufferWithProperties(BAD(0, WRONG(cl_context), context), BAD(1, no_mem, NULL), BAD(2, 1ul << 40, 0), BAD(3, 0, 64), BAD(4, bytes, NULL), &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_PROPERTY}, {2, CL_INVALID_VALUE}, {3, CL_INVALID_BUFFER_SIZE}, {4, CL_INVALID_HOST_PTR})
ORDER(clCreateSubBuffer,
      clCreateSubBuffer(BAD(0, WRONG(cl_mem), buffer), BAD(1, CL_MEM_USE_HOST_PTR, 0), BAD(2, 1, CL_BUFFER_CREATE_TYPE_REGION), BAD(3, NULL, BAD(4, &outside, BAD(5, &empty, BAD(6, &odd, &part)))), &code),
      {0, CL_INVALID_MEM_OBJECT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE}, {3, CL_INVALID_VALUE}, {3, CL_INVALID_VALUE}, {3, CL_INVALID_BUFFER_SIZE},
      {3, CL_MISALIGNED_SUB_BUFFER_OFFSET})
ORDER(clCreateImage,
      clCreateImage(BAD(0, WRONG(cl_context), context), BAD(1, 1ul << 40, 0), BAD(2, NULL, BAD(3, &no_format, &rgba)), BAD(4, NULL, BAD(5, &shapeless, BAD(6, &vast, &flat))), BAD(7, bytes, NULL), &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR}, {2, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR},
      {4, CL_INVALID_IMAGE_DESCRIPTOR}, {4, CL_INVALID_IMAGE_DESCRIPTOR}, {4, CL_INVALID_IMAGE_SIZE}, {7, CL_INVALID_HOST_PTR})
ORDER(clCreateImageWithProperties,
      clCreateImageWithProperties(BAD(0, WRONG(cl_context), context), BAD(1, no_mem, NULL), BAD(2, 1ul << 40, 0), BAD(3, NULL, &rgba), BAD(4, NULL, &flat), BAD(5, bytes, NULL), &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_PROPERTY}, {2, CL_INVALID_VALUE}, {3, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR}, {4, CL_INVALID_IMAGE_DESCRIPTOR},
      {5, CL_INVALID_HOST_PTR})
ORDER(clCreateImage2D, clCreateImage2D(BAD(0, WRONG(cl_context), context), BAD(1, 1ul << 40, 0), BAD(2, NULL, &rgba), BAD(3, 0, 4), 4, 0, BAD(4, bytes, NULL), &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR}, {3, CL_INVALID_IMAGE_SIZE}, {4, CL_INVALID_HOST_PTR})
ORDER(clCreateImage3D, clCreateImage3D(BAD(0, WRONG(cl_context), context), BAD(1, 1ul << 40, 0), BAD(2, NULL, &rgba), BAD(3, 0, 4), 4, 2, 0, 0, BAD(4, bytes, NULL), &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR}, {3, CL_INVALID_IMAGE_SIZE}, {4, CL_INVALID_HOST_PTR})
// Without pipes the device refuses the call whatever else is wrong.
ORDER(clCreatePipe, clCreatePipe(BAD(0, WRONG(cl_context), context), BAD(2, 1ul << 40, 0), BAD(3, 0, 4), 4, NULL, &code), {0, CL_INVALID_CONTEXT},
      {1, CL_INVALID_OPERATION}, {2, CL_INVALID_OPERATION}, {3, CL_INVALID_OPERATION})
ORDER(clGetPipeInfo, code = clGetPipeInfo(BAD(0, WRONG(cl_mem), buffer), 0xffff, 8, bytes, NULL), {0, CL_INVALID_MEM_OBJECT}, {1, CL_INVALID_MEM_OBJECT})
ORDER(clGetSupportedImageFormats,
      code = clGetSupportedImageFormats(BAD(0, WRONG(cl_context), context), BAD(1, 1ul << 40, 0), BAD(2, 1, CL_MEM_OBJECT_IMAGE2D), BAD(3, 0, 1), (cl_image_format *)bytes, NULL),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE}, {3, CL_INVALID_VALUE})
INFO(clGetMemObjectInfo, cl_mem, buffer, CL_INVALID_MEM_OBJECT)
ORDER(clGetImageInfo, code = clGetImageInfo(BAD(0, WRONG(cl_mem), BAD(1, buffer, image)), BAD(2, 0xffff, CL_IMAGE_WIDTH), 8, bytes, NULL), {0, CL_INVALID_MEM_OBJECT},
      {0, CL_INVALID_MEM_OBJECT}, {2, CL_INVALID_VALUE})
ORDER(clSetMemObjectDestructorCallback, code = clSetMemObjectDestructorCallback(BAD(0, WRONG(cl_mem), buffer), NULL, NULL), {0, CL_INVALID_MEM_OBJECT})

// ---- samplers

ORDER(clCreateSampler, clCreateSampler(BAD(0, WRONG(cl_context), context), BAD(1, 7, CL_FALSE), BAD(2, 1, CL_ADDRESS_CLAMP), BAD(3, 1, CL_FILTER_LINEAR), &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE}, {3, CL_INVALID_VALUE})
ORDER(clCreateSamplerWithProperties, clCreateSamplerWithProperties(BAD(0, WRONG(cl_context), context), BAD(1, no_sampler, NULL), &code), {0, CL_INVALID_CONTEXT},
      {1, CL_INVALID_VALUE})
ORDER(clGetSamplerInfo, code = clGetSamplerInfo(BAD(0, WRONG(cl_sampler), sampler), BAD(1, 0xffff, CL_SAMPLER_FILTER_MODE), 8, bytes, NULL), {0, CL_INVALID_SAMPLER},
      {1, CL_INVALID_VALUE})

// ---- programs

ORDER(clCreateProgramWithSource, clCreateProgramWithSource(BAD(0, WRONG(cl_context), context), BAD(1, 0, 1), BAD(2, NULL, BAD(3, no_source, &source)), NULL, &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE})
ORDER(clCreateProgramWithBinary,
      clCreateProgramWithBinary(BAD(0, WRONG(cl_context), context), BAD(1, 0, 1), BAD(2, NULL, BAD(3, &none, &device)), BAD(4, NULL, lengths), BAD(5, no_binaries, binaries), NULL, &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE}, {2, CL_INVALID_DEVICE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_VALUE})
ORDER(clCreateProgramWithBuiltInKernels,
      clCreateProgramWithBuiltInKernels(BAD(0, WRONG(cl_context), context), BAD(1, 0, 1), BAD(2, NULL, BAD(4, &none, &device)), BAD(3, NULL, "no.such.kernel"), &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE}, {3, CL_INVALID_VALUE}, {2, CL_INVALID_DEVICE})
ORDER(clCreateProgramWithIL, clCreateProgramWithIL(BAD(0, WRONG(cl_context), context), BAD(2, NULL, bytes), BAD(3, 0, 4), &code), {0, CL_INVALID_CONTEXT},
      {1, CL_INVALID_OPERATION}, {2, CL_INVALID_OPERATION}, {3, CL_INVALID_OPERATION})
ORDER(clBuildProgram,
      code = clBuildProgram(BAD(0, WRONG(cl_program), BAD(4, program, fresh)), BAD(1, 1, BAD(3, 1, 0)), BAD(3, &none, NULL), "", NULL, BAD(2, bytes, NULL)),
      {0, CL_INVALID_PROGRAM}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE}, {1, CL_INVALID_DEVICE}, {0, CL_INVALID_OPERATION})
ORDER(clCompileProgram,
      code = clCompileProgram(BAD(0, WRONG(cl_program), BAD(6, program, fresh)), BAD(1, 1, BAD(5, 1, 0)), BAD(5, &none, NULL), "", BAD(2, 1, BAD(4, 1, 0)), BAD(4, no_programs, NULL), BAD(4, header_names, NULL), NULL, BAD(3, bytes, NULL)),
      {0, CL_INVALID_PROGRAM}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE}, {3, CL_INVALID_VALUE}, {2, CL_INVALID_PROGRAM}, {1, CL_INVALID_DEVICE},
      {0, CL_INVALID_OPERATION})
ORDER(clLinkProgram,
      clLinkProgram(BAD(0, WRONG(cl_context), context), BAD(1, 1, BAD(5, 1, 0)), BAD(5, &none, NULL), "", BAD(2, 0, 1), BAD(3, no_programs, &program), NULL, BAD(4, bytes, NULL), &code),
      {0, CL_INVALID_CONTEXT}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_VALUE}, {2, CL_INVALID_PROGRAM}, {4, CL_INVALID_VALUE}, {1, CL_INVALID_DEVICE})
ORDER(clSetProgramReleaseCallback, code = clSetProgramReleaseCallback(BAD(0, WRONG(cl_program), program), BAD(2, NULL, notify_program), NULL), {0, CL_INVALID_PROGRAM},
      {1, CL_INVALID_OPERATION}, {2, CL_INVALID_OPERATION})
ORDER(clSetProgramSpecializationConstant, code = clSetProgramSpecializationConstant(BAD(0, WRONG(cl_program), program), 0, BAD(2, 0, 4), BAD(3, NULL, bytes)),
      {0, CL_INVALID_PROGRAM}, {1, CL_INVALID_OPERATION}, {2, CL_INVALID_OPERATION}, {3, CL_INVALID_OPERATION})
INFO(clGetProgramInfo, cl_program, program, CL_INVALID_PROGRAM)
ORDER(clGetProgramBuildInfo, code = clGetProgramBuildInfo(BAD(0, WRONG(cl_program), program), BAD(1, NULL, device), BAD(2, 0xffff, CL_PROGRAM_BUILD_STATUS), 8, bytes, NULL),
      {0, CL_INVALID_PROGRAM}, {1, CL_INVALID_DEVICE}, {2, CL_INVALID_VALUE})

// ---- kernels

ORDER(clCreateKernel, clCreateKernel(BAD(0, WRONG(cl_program), BAD(1, fresh, program)), BAD(2, "none", BAD(3, NULL, "k")), &code), {0, CL_INVALID_PROGRAM},
      {0, CL_INVALID_PROGRAM_EXECUTABLE}, {2, CL_INVALID_KERNEL_NAME}, {2, CL_INVALID_VALUE})
ORDER(clCreateKernelsInProgram, code = clCreateKernelsInProgram(BAD(0, WRONG(cl_program), BAD(1, fresh, program)), BAD(2, 0, 1), (cl_kernel *)bytes, NULL),
      {0, CL_INVALID_PROGRAM}, {0, CL_INVALID_PROGRAM_EXECUTABLE}, {2, CL_INVALID_VALUE})
// A value can be read only after its size has been checked.
ORDER(clSetKernelArg, code = clSetKernelArg(BAD(0, WRONG(cl_kernel), kernel), BAD(1, 9, 1), BAD(3, 3, 4), BAD(2, NULL, bytes)), {0, CL_INVALID_KERNEL},
      {1, CL_INVALID_ARG_INDEX}, {2, CL_INVALID_ARG_VALUE}, {3, CL_INVALID_ARG_SIZE})
INFO(clGetKernelInfo, cl_kernel, kernel, CL_INVALID_KERNEL)
ORDER(clGetKernelArgInfo, code = clGetKernelArgInfo(BAD(0, WRONG(cl_kernel), kernel), BAD(1, 9, 0), BAD(2, 0xffff, CL_KERNEL_ARG_ADDRESS_QUALIFIER), 8, bytes, NULL),
      {0, CL_INVALID_KERNEL}, {1, CL_INVALID_ARG_INDEX}, {2, CL_INVALID_VALUE})
ORDER(clGetKernelWorkGroupInfo,
      code = clGetKernelWorkGroupInfo(BAD(0, WRONG(cl_kernel), kernel), BAD(1, WRONG(cl_device_id), device), BAD(2, 0xffff, CL_KERNEL_WORK_GROUP_SIZE), 8, bytes, NULL),
      {0, CL_INVALID_KERNEL}, {1, CL_INVALID_DEVICE}, {2, CL_INVALID_VALUE})

// No borrowed device has sub-groups.
ORDER(clGetKernelSubGroupInfo,
      code = clGetKernelSubGroupInfo(BAD(0, WRONG(cl_kernel), kernel), BAD(1, WRONG(cl_device_id), device), 0xffff, BAD(2, 8, 0), NULL, 8, bytes, NULL),
      {0, CL_INVALID_KERNEL}, {1, CL_INVALID_DEVICE}, {2, CL_INVALID_OPERATION})

// ---- events

ORDER(clWaitForEvents, code = clWaitForEvents(BAD(0, 0, BAD(1, 2, 1)), BAD(1, two_contexts(), BAD(2, no_events, &event))), {0, CL_INVALID_VALUE}, {0, CL_INVALID_CONTEXT},
      {2, CL_INVALID_EVENT})
INFO(clGetEventInfo, cl_event, event, CL_INVALID_EVENT)
ORDER(clSetUserEventStatus, code = clSetUserEventStatus(BAD(0, WRONG(cl_event), BAD(2, user, user)), BAD(1, CL_RUNNING, CL_COMPLETE)), {0, CL_INVALID_EVENT},
      {1, CL_INVALID_VALUE}, {0, CL_INVALID_OPERATION})
ORDER(clSetEventCallback, code = clSetEventCallback(BAD(0, WRONG(cl_event), event), BAD(1, 9, CL_COMPLETE), NULL, NULL), {0, CL_INVALID_EVENT}, {1, CL_INVALID_VALUE})
ORDER(clGetEventProfilingInfo, code = clGetEventProfilingInfo(BAD(0, WRONG(cl_event), event), BAD(2, 0xffff, CL_PROFILING_COMMAND_END), 8, bytes, NULL),
      {0, CL_INVALID_EVENT}, {1, CL_PROFILING_INFO_NOT_AVAILABLE}, {2, CL_PROFILING_INFO_NOT_AVAILABLE})

// ---- commands. {queue, context of the object, object, value, wait list, its context, access of the host}

ORDER(clEnqueueReadBuffer,
      code = clEnqueueReadBuffer(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, BAD(7, unreadable, buffer))), CL_TRUE, BAD(3, 65, 0), 4, BAD(4, NULL, bytes), WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT}, {1, CL_INVALID_OPERATION})
ORDER(clEnqueueWriteBuffer,
      code = clEnqueueWriteBuffer(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, BAD(7, unwritable, buffer))), CL_TRUE, BAD(3, 65, 0), 4, BAD(4, NULL, bytes), WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT}, {1, CL_INVALID_OPERATION})
ORDER(clEnqueueReadBufferRect,
      code = clEnqueueReadBufferRect(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, BAD(7, unreadable, buffer))), CL_TRUE, BAD(3, huge, zeros), zeros, ones, 0, 0, 0, 0, BAD(4, NULL, bytes), WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT}, {1, CL_INVALID_OPERATION})
ORDER(clEnqueueWriteBufferRect,
      code = clEnqueueWriteBufferRect(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, BAD(7, unwritable, buffer))), CL_TRUE, BAD(3, huge, zeros), zeros, ones, 0, 0, 0, 0, BAD(4, NULL, bytes), WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT}, {1, CL_INVALID_OPERATION})
ORDER(clEnqueueReadImage,
      code = clEnqueueReadImage(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign_image, BAD(2, NULL, BAD(7, unreadable_image, image))), CL_TRUE, BAD(3, huge, zeros), ones, 0, 0, BAD(4, NULL, bytes), WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT}, {1, CL_INVALID_OPERATION})
ORDER(clEnqueueWriteImage,
      code = clEnqueueWriteImage(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign_image, BAD(2, NULL, BAD(7, unwritable_image, image))), CL_TRUE, BAD(3, huge, zeros), ones, 0, 0, BAD(4, NULL, bytes), WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT}, {1, CL_INVALID_OPERATION})
ORDER(clEnqueueMapBuffer,
      clEnqueueMapBuffer(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, BAD(6, unreadable, buffer))), CL_TRUE, CL_MAP_READ, BAD(3, 65, 0), 4, WAITS(4, 5), &code),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_EVENT_WAIT_LIST}, {4, CL_INVALID_CONTEXT},
      {1, CL_INVALID_OPERATION})
ORDER(clEnqueueMapImage,
      clEnqueueMapImage(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign_image, BAD(2, NULL, BAD(7, unreadable_image, image))), CL_TRUE, CL_MAP_READ, BAD(3, huge, zeros), ones, BAD(4, NULL, pitches), pitches, WAITS(5, 6), &code),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT}, {1, CL_INVALID_OPERATION})
ORDER(clEnqueueUnmapMemObject, code = clEnqueueUnmapMemObject(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, buffer)), bytes, WAITS(4, 5)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE})
ORDER(clEnqueueFillBuffer,
      code = clEnqueueFillBuffer(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, buffer)), BAD(4, NULL, bytes), BAD(5, 3, 4), BAD(3, 68, 0), 4, WAITS(6, 7)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_VALUE},
      {6, CL_INVALID_EVENT_WAIT_LIST}, {6, CL_INVALID_CONTEXT})
ORDER(clEnqueueFillImage,
      code = clEnqueueFillImage(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign_image, BAD(2, NULL, image)), BAD(3, NULL, bytes), BAD(4, huge, zeros), ones, WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT})
ORDER(clEnqueueCopyBuffer,
      code = clEnqueueCopyBuffer(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, buffer)), buffer, BAD(3, 65, 0), BAD(6, 2, 32), 4, WAITS(4, 5)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_EVENT_WAIT_LIST}, {4, CL_INVALID_CONTEXT})
ORDER(clEnqueueCopyBufferRect,
      code = clEnqueueCopyBufferRect(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, buffer)), unwritable, BAD(3, huge, zeros), zeros, ones, 0, 0, 0, 0, WAITS(4, 5)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_EVENT_WAIT_LIST}, {4, CL_INVALID_CONTEXT})
ORDER(clEnqueueCopyImage,
      code = clEnqueueCopyImage(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign_image, BAD(2, NULL, BAD(3, other_format, image))), unreadable_image, BAD(4, huge, zeros), zeros, ones, WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {1, CL_IMAGE_FORMAT_MISMATCH}, {4, CL_INVALID_VALUE},
      {5, CL_INVALID_EVENT_WAIT_LIST}, {5, CL_INVALID_CONTEXT})
ORDER(clEnqueueCopyImageToBuffer,
      code = clEnqueueCopyImageToBuffer(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign_image, BAD(2, NULL, image)), buffer, BAD(3, huge, zeros), ones, BAD(4, 65, 0), WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT})
ORDER(clEnqueueCopyBufferToImage,
      code = clEnqueueCopyBufferToImage(BAD(0, WRONG(cl_command_queue), queue), BAD(1, foreign, BAD(2, NULL, buffer)), image, BAD(4, 65, 0), BAD(3, huge, zeros), ones, WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {3, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT})
ORDER(clEnqueueMigrateMemObjects,
      code = clEnqueueMigrateMemObjects(BAD(0, WRONG(cl_command_queue), queue), BAD(3, 0, 1), BAD(1, &foreign, BAD(2, no_mems, &buffer)), BAD(4, 1ul << 40, 0), WAITS(5, 6)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_MEM_OBJECT}, {1, CL_INVALID_VALUE}, {4, CL_INVALID_VALUE}, {5, CL_INVALID_EVENT_WAIT_LIST},
      {5, CL_INVALID_CONTEXT})
ORDER(clEnqueueNDRangeKernel,
      code = clEnqueueNDRangeKernel(BAD(0, WRONG(cl_command_queue), queue), BAD(1, NULL, BAD(2, foreign_kernel, BAD(3, bare, kernel))), BAD(4, 0, 1), NULL, ones, BAD(5, huge, NULL), WAITS(6, 7)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_KERNEL}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_KERNEL_ARGS}, {4, CL_INVALID_WORK_DIMENSION},
      {5, CL_INVALID_WORK_GROUP_SIZE}, {6, CL_INVALID_EVENT_WAIT_LIST}, {6, CL_INVALID_CONTEXT})
ORDER(clEnqueueTask, code = clEnqueueTask(BAD(0, WRONG(cl_command_queue), queue), BAD(1, NULL, BAD(2, foreign_kernel, BAD(3, bare, kernel))), WAITS(4, 5)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_KERNEL}, {1, CL_INVALID_CONTEXT}, {1, CL_INVALID_KERNEL_ARGS}, {4, CL_INVALID_EVENT_WAIT_LIST},
      {4, CL_INVALID_CONTEXT})
ORDER(clEnqueueMarkerWithWaitList, code = clEnqueueMarkerWithWaitList(BAD(0, WRONG(cl_command_queue), queue), WAITS(1, 2)), {0, CL_INVALID_COMMAND_QUEUE},
      {1, CL_INVALID_EVENT_WAIT_LIST}, {1, CL_INVALID_CONTEXT})
ORDER(clEnqueueBarrierWithWaitList, code = clEnqueueBarrierWithWaitList(BAD(0, WRONG(cl_command_queue), queue), WAITS(1, 2)), {0, CL_INVALID_COMMAND_QUEUE},
      {1, CL_INVALID_EVENT_WAIT_LIST}, {1, CL_INVALID_CONTEXT})
ORDER(clEnqueueMarker, code = clEnqueueMarker(BAD(0, WRONG(cl_command_queue), queue), NULL), {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_VALUE})
ORDER(clEnqueueWaitForEvents, code = clEnqueueWaitForEvents(BAD(0, WRONG(cl_command_queue), queue), BAD(1, 0, 1), BAD(2, alien_list(), BAD(3, no_events, &event))),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_CONTEXT}, {2, CL_INVALID_EVENT})

// ---- shared virtual memory. An error of the wait list precedes one of the pointers.

#define SVM_QUEUE BAD(0, WRONG(cl_command_queue), queue)
#define SVM_FAULTS {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_EVENT_WAIT_LIST}, {1, CL_INVALID_CONTEXT}, {3, CL_INVALID_VALUE}
ORDER(clEnqueueSVMFree, code = clEnqueueSVMFree(SVM_QUEUE, BAD(1, 1, 0), NULL, NULL, NULL, WAITS(2, 3)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_EVENT_WAIT_LIST}, {2, CL_INVALID_CONTEXT})
ORDER(clEnqueueSVMMemcpy, code = clEnqueueSVMMemcpy(SVM_QUEUE, CL_TRUE, BAD(3, NULL, shared), BAD(4, shared, bytes), 8, WAITS(1, 2)), SVM_FAULTS,
      {4, CL_MEM_COPY_OVERLAP})
ORDER(clEnqueueSVMMemFill, code = clEnqueueSVMMemFill(SVM_QUEUE, BAD(3, NULL, shared), bytes, 8, 8, WAITS(1, 2)), SVM_FAULTS)
ORDER(clEnqueueSVMMap, code = clEnqueueSVMMap(SVM_QUEUE, CL_TRUE, CL_MAP_READ, BAD(3, NULL, shared), 8, WAITS(1, 2)), SVM_FAULTS)
ORDER(clEnqueueSVMUnmap, code = clEnqueueSVMUnmap(SVM_QUEUE, BAD(3, NULL, shared), WAITS(1, 2)), SVM_FAULTS)
ORDER(clEnqueueSVMMigrateMem, code = clEnqueueSVMMigrateMem(SVM_QUEUE, BAD(1, 0, 1), (const void **)&shared, NULL, 0, WAITS(2, 3)),
      {0, CL_INVALID_COMMAND_QUEUE}, {1, CL_INVALID_VALUE}, {2, CL_INVALID_EVENT_WAIT_LIST}, {2, CL_INVALID_CONTEXT})
ORDER(clSetKernelArgSVMPointer, code = clSetKernelArgSVMPointer(BAD(0, WRONG(cl_kernel), kernel), BAD(1, 9, 0), BAD(2, (void *)bytes, shared)),
      {0, CL_INVALID_KERNEL}, {1, CL_INVALID_ARG_INDEX}, {2, CL_INVALID_ARG_VALUE})
ORDER(clSetKernelExecInfo, code = clSetKernelExecInfo(BAD(0, WRONG(cl_kernel), kernel), BAD(1, 0xffff, CL_KERNEL_EXEC_INFO_SVM_PTRS), 8, &shared),
      {0, CL_INVALID_KERNEL}, {1, CL_INVALID_VALUE})

// ---- functions that every borrowed device refuses: only the first object is checked

#define REFUSED(function, type, object, invalid, ...) \
	ORDER(function, code = function(BAD(0, WRONG(type), object), __VA_ARGS__), {0, invalid}, {1, CL_INVALID_OPERATION})
REFUSED(clEnqueueNativeKernel, cl_command_queue, queue, CL_INVALID_COMMAND_QUEUE, NULL, BAD(1, bytes, NULL), 0, 0, NULL, NULL, 0, NULL, NULL)

// ---- functions with one error

#define ONE(function, type, invalid) ORDER(function, code = function(WRONG(type)), {0, invalid})
#define REFERENCES(object, type, invalid) ONE(clRetain##object, type, invalid) ONE(clRelease##object, type, invalid)
REFERENCES(Device, cl_device_id, CL_INVALID_DEVICE)
REFERENCES(Context, cl_context, CL_INVALID_CONTEXT)
REFERENCES(CommandQueue, cl_command_queue, CL_INVALID_COMMAND_QUEUE)
REFERENCES(MemObject, cl_mem, CL_INVALID_MEM_OBJECT)
REFERENCES(Sampler, cl_sampler, CL_INVALID_SAMPLER)
REFERENCES(Program, cl_program, CL_INVALID_PROGRAM)
REFERENCES(Kernel, cl_kernel, CL_INVALID_KERNEL)
REFERENCES(Event, cl_event, CL_INVALID_EVENT)
ONE(clFlush, cl_command_queue, CL_INVALID_COMMAND_QUEUE)
ONE(clFinish, cl_command_queue, CL_INVALID_COMMAND_QUEUE)
ONE(clEnqueueBarrier, cl_command_queue, CL_INVALID_COMMAND_QUEUE)
ONE(clUnloadPlatformCompiler, cl_platform_id, CL_INVALID_PLATFORM)
ORDER(clCloneKernel, clCloneKernel(WRONG(cl_kernel), &code), {0, CL_INVALID_KERNEL})
ORDER(clCreateUserEvent, clCreateUserEvent(WRONG(cl_context), &code), {0, CL_INVALID_CONTEXT})

#define ROW(function) {#function, order_##function}

static const struct clt_case cases[] = {
	ROW(clGetPlatformIDs),
	ROW(clGetPlatformInfo),
	ROW(clGetDeviceIDs),
	ROW(clGetDeviceInfo),
	ROW(clCreateSubDevices),
	ROW(clSetDefaultDeviceCommandQueue),
	ROW(clGetDeviceAndHostTimer),
	ROW(clGetHostTimer),
	ROW(clCreateContext),
	ROW(clCreateContextFromType),
	ROW(clGetContextInfo),
	ROW(clSetContextDestructorCallback),
	ROW(clCreateCommandQueueWithProperties),
	ROW(clCreateCommandQueue),
	ROW(clGetCommandQueueInfo),
	ROW(clCreateBuffer),
	ROW(clCreateBufferWithProperties),
	ROW(clCreateSubBuffer),
	ROW(clCreateImage),
	ROW(clCreateImageWithProperties),
	ROW(clCreateImage2D),
	ROW(clCreateImage3D),
	ROW(clCreatePipe),
	ROW(clGetPipeInfo),
	ROW(clGetSupportedImageFormats),
	ROW(clGetMemObjectInfo),
	ROW(clGetImageInfo),
	ROW(clSetMemObjectDestructorCallback),
	ROW(clCreateSampler),
	ROW(clCreateSamplerWithProperties),
	ROW(clGetSamplerInfo),
	ROW(clCreateProgramWithSource),
	ROW(clCreateProgramWithBinary),
	ROW(clCreateProgramWithBuiltInKernels),
	ROW(clCreateProgramWithIL),
	ROW(clBuildProgram),
	ROW(clCompileProgram),
	ROW(clLinkProgram),
	ROW(clSetProgramReleaseCallback),
	ROW(clSetProgramSpecializationConstant),
	ROW(clGetProgramInfo),
	ROW(clGetProgramBuildInfo),
	ROW(clCreateKernel),
	ROW(clCreateKernelsInProgram),
	ROW(clSetKernelArg),
	ROW(clGetKernelInfo),
	ROW(clGetKernelArgInfo),
	ROW(clGetKernelWorkGroupInfo),
	ROW(clGetKernelSubGroupInfo),
	ROW(clWaitForEvents),
	ROW(clGetEventInfo),
	ROW(clSetUserEventStatus),
	ROW(clSetEventCallback),
	ROW(clGetEventProfilingInfo),
	ROW(clEnqueueReadBuffer),
	ROW(clEnqueueWriteBuffer),
	ROW(clEnqueueReadBufferRect),
	ROW(clEnqueueWriteBufferRect),
	ROW(clEnqueueReadImage),
	ROW(clEnqueueWriteImage),
	ROW(clEnqueueMapBuffer),
	ROW(clEnqueueMapImage),
	ROW(clEnqueueUnmapMemObject),
	ROW(clEnqueueFillBuffer),
	ROW(clEnqueueFillImage),
	ROW(clEnqueueCopyBuffer),
	ROW(clEnqueueCopyBufferRect),
	ROW(clEnqueueCopyImage),
	ROW(clEnqueueCopyImageToBuffer),
	ROW(clEnqueueCopyBufferToImage),
	ROW(clEnqueueMigrateMemObjects),
	ROW(clEnqueueNDRangeKernel),
	ROW(clEnqueueTask),
	ROW(clEnqueueMarkerWithWaitList),
	ROW(clEnqueueBarrierWithWaitList),
	ROW(clEnqueueMarker),
	ROW(clEnqueueWaitForEvents),
	ROW(clEnqueueSVMFree),
	ROW(clEnqueueSVMMemcpy),
	ROW(clEnqueueSVMMemFill),
	ROW(clEnqueueSVMMap),
	ROW(clEnqueueSVMUnmap),
	ROW(clEnqueueSVMMigrateMem),
	ROW(clSetKernelArgSVMPointer),
	ROW(clSetKernelExecInfo),
	ROW(clEnqueueNativeKernel),
	ROW(clRetainDevice),
	ROW(clReleaseDevice),
	ROW(clRetainContext),
	ROW(clReleaseContext),
	ROW(clRetainCommandQueue),
	ROW(clReleaseCommandQueue),
	ROW(clRetainMemObject),
	ROW(clReleaseMemObject),
	ROW(clRetainSampler),
	ROW(clReleaseSampler),
	ROW(clRetainProgram),
	ROW(clReleaseProgram),
	ROW(clRetainKernel),
	ROW(clReleaseKernel),
	ROW(clRetainEvent),
	ROW(clReleaseEvent),
	ROW(clFlush),
	ROW(clFinish),
	ROW(clEnqueueBarrier),
	ROW(clUnloadPlatformCompiler),
	ROW(clCloneKernel),
	ROW(clCreateUserEvent),
	{NULL, NULL},
};

int main(int argc, char **argv) { return clt_main(argc, argv, cases); }
