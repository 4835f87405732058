/* layer.c: the library as a layer of the OpenCL loader, which records the calls of another driver.
 * Layer: entry.
 *
 * A queue that the program creates gets profiling, so that the device's times can be recorded. This
 * is not visible to the program: queries return the properties that it requested, and no times
 * unless it requested them. */
#include "callback.h"
#include "entry.h"
#include "loaders.h"
#include "queues.h"

#include <CL/cl_layer.h>

static struct _cl_icd_dispatch changed, recorded;
static const cl_uint entries = sizeof recorded / sizeof(void *);

/* ---- queues */

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *errcode_ret) {
	cl_command_queue q = entry_driver.clCreateCommandQueue(context, device, properties | CL_QUEUE_PROFILING_ENABLE, errcode_ret);
	if (q) {
		queues_add(q, properties, NULL);
		return q;
	}
	q = entry_driver.clCreateCommandQueue(context, device, properties, errcode_ret);
	queues_remove(q);
	return q;
}

/* copy_properties returns the list with profiling, or NULL for a list that is too long or for a
 * queue on the device. */
static const cl_queue_properties *copy_properties(const cl_queue_properties *list, cl_queue_properties *to, cl_command_queue_properties *asked) {
	size_t n = 0;
	int found = 0;
	*asked = 0;
	for (; list && list[n]; n += 2) {
		if (n + 5 > QUEUE_WORDS)
			return NULL;
		to[n] = list[n];
		to[n + 1] = list[n + 1];
		if (list[n] != CL_QUEUE_PROPERTIES)
			continue;
		*asked = list[n + 1];
		if (*asked & CL_QUEUE_ON_DEVICE)
			return NULL;
		to[n + 1] |= CL_QUEUE_PROFILING_ENABLE;
		found = 1;
	}
	if (!found) {
		to[n++] = CL_QUEUE_PROPERTIES;
		to[n++] = CL_QUEUE_PROFILING_ENABLE;
	}
	to[n] = 0;
	return to;
}

static cl_command_queue CL_API_CALL create_queue_with(cl_context context, cl_device_id device, const cl_queue_properties *properties, cl_int *errcode_ret) {
	cl_queue_properties list[QUEUE_WORDS];
	cl_command_queue_properties asked;
	const cl_queue_properties *with = copy_properties(properties, list, &asked);
	cl_command_queue q = with ? entry_driver.clCreateCommandQueueWithProperties(context, device, with, errcode_ret) : NULL;
	if (q) {
		queues_add(q, asked, properties);
		return q;
	}
	q = entry_driver.clCreateCommandQueueWithProperties(context, device, properties, errcode_ret);
	queues_remove(q);
	return q;
}

static cl_int CL_API_CALL retain_queue(cl_command_queue queue) {
	cl_int status = entry_driver.clRetainCommandQueue(queue);
	if (status == CL_SUCCESS)
		queues_retain(queue);
	return status;
}

static cl_int CL_API_CALL release_queue(cl_command_queue queue) {
	queues_release(queue);
	return entry_driver.clReleaseCommandQueue(queue);
}

/* Returns 1 when the queue has profiling that the program has not requested; *request is what the
 * program requested. */
static int profiling_added(cl_command_queue queue, struct queue_request *request) {
	return queues_find(queue, request) && !(request->properties & CL_QUEUE_PROFILING_ENABLE);
}

/* answer_list answers CL_QUEUE_PROPERTIES_ARRAY with the program's own list, if the driver answers
 * that query. */
static cl_int answer_list(cl_command_queue queue, const struct queue_request *request, size_t size, void *value, size_t *size_ret) {
	size_t drivers_size;
	cl_int status = entry_driver.clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, 0, NULL, &drivers_size);
	if (status == CL_SUCCESS && value && size < request->listed)
		status = CL_INVALID_VALUE;
	if (status == CL_SUCCESS && value)
		memcpy(value, request->list, request->listed);
	if (status == CL_SUCCESS && size_ret)
		*size_ret = request->listed;
	return status;
}

static cl_int CL_API_CALL queue_info(cl_command_queue queue, cl_command_queue_info name, size_t size, void *value, size_t *size_ret) {
	struct queue_request request;
	if ((name != CL_QUEUE_PROPERTIES && name != CL_QUEUE_PROPERTIES_ARRAY) || !profiling_added(queue, &request))
		return entry_driver.clGetCommandQueueInfo(queue, name, size, value, size_ret);
	if (name == CL_QUEUE_PROPERTIES_ARRAY)
		return answer_list(queue, &request, size, value, size_ret);
	cl_int status = entry_driver.clGetCommandQueueInfo(queue, name, size, value, size_ret);
	if (status == CL_SUCCESS && value && size >= sizeof(cl_command_queue_properties))
		*(cl_command_queue_properties *)value &= ~(cl_command_queue_properties)CL_QUEUE_PROFILING_ENABLE;
	return status;
}

static cl_int CL_API_CALL profiling_info(cl_event event, cl_profiling_info name, size_t size, void *value, size_t *size_ret) {
	struct queue_request request;
	cl_command_queue queue = NULL;
	if (event && entry_driver.clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL) == CL_SUCCESS && queue && profiling_added(queue, &request))
		return CL_PROFILING_INFO_NOT_AVAILABLE;
	return entry_driver.clGetEventProfilingInfo(event, name, size, value, size_ret);
}

/* ---- contexts: the libraries that share one may use several loaders */

static cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint num_devices, const cl_device_id *devices, void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t, void *), void *user_data, cl_int *errcode_ret) {
	loaders_initialise();
	return entry_driver.clCreateContext(properties, num_devices, devices, pfn_notify, user_data, errcode_ret);
}

static cl_context CL_API_CALL create_context_from_type(const cl_context_properties *properties, cl_device_type type, void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t, void *), void *user_data, cl_int *errcode_ret) {
	loaders_initialise();
	return entry_driver.clCreateContextFromType(properties, type, pfn_notify, user_data, errcode_ret);
}

/* ---- the loader */

EXPORTED cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *size_ret) {
	static const char text[] = "outboard";
	static const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
	const void *from = name == CL_LAYER_NAME ? (const void *)text : &version;
	size_t n = name == CL_LAYER_NAME ? sizeof text : sizeof version;
	if ((name != CL_LAYER_NAME && name != CL_LAYER_API_VERSION) || (value && size < n))
		return CL_INVALID_VALUE;
	if (value)
		memcpy(value, from, n);
	if (size_ret)
		*size_ret = n;
	return CL_SUCCESS;
}

/* Other threads may call through the tables while another loader initialises the layer, so each
 * table is made before it is published. */
static void change(void) {
	struct _cl_icd_dispatch made = entry_driver;
	if (entry_driver.clCreateCommandQueue)
		made.clCreateCommandQueue = create_queue;
	if (entry_driver.clCreateCommandQueueWithProperties)
		made.clCreateCommandQueueWithProperties = create_queue_with;
	made.clCreateContext = create_context;
	made.clCreateContextFromType = create_context_from_type;
	made.clRetainCommandQueue = retain_queue;
	made.clReleaseCommandQueue = release_queue;
	made.clGetCommandQueueInfo = queue_info;
	made.clGetEventProfilingInfo = profiling_info;
	callback_wrap(&made);
	changed = made;
	record_overlay(&made);
	recorded = made;
}

EXPORTED cl_int CL_API_CALL clInitLayer(cl_uint num_entries, const cl_icd_dispatch *next, cl_uint *num_entries_ret, const cl_icd_dispatch **layer) {
	if (!next || !num_entries_ret || !layer)
		return CL_INVALID_VALUE;
	memcpy(&entry_driver, next, (num_entries < entries ? num_entries : entries) * sizeof(void *));
	if (record_open()) {
		loaders_add(__builtin_return_address(0));
		pthread_atfork(NULL, NULL, record_forked);
		entry_sizes = 1;
		entry_next = &changed;
		change();
	} else {
		recorded = entry_driver;
	}
	*num_entries_ret = num_entries < entries ? num_entries : entries;
	*layer = &recorded;
	return CL_SUCCESS;
}
