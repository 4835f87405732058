/* layer.c: the library as a layer of the OpenCL loader, which records the calls of another driver.
 * Layer: entry.
 *
 * A queue that the program creates gets profiling, so that the device's times can be recorded. This
 * is not visible to the program: queries return the properties that it requested, and no times
 * unless it requested them. */
#include "entry.h"

#include <CL/cl_layer.h>
#include <stdlib.h>

static struct _cl_icd_dispatch changed, recorded;
static const cl_uint entries = sizeof recorded / sizeof(void *);

enum { MAX_PROPERTIES = 64 };

/* ---- queues */

struct requested_queue {
	struct requested_queue *next;
	cl_command_queue queue;
	cl_command_queue_properties properties;
	size_t listed;             /* bytes of list; 0 for a queue that was created without a list */
	cl_queue_properties list[MAX_PROPERTIES];
};

static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;
static struct requested_queue *queues;

/* Adds a queue. It replaces a released queue at the same address. */
static void queue_add(cl_command_queue queue, cl_command_queue_properties properties, const cl_queue_properties *list) {
	if (!queue)
		return;
	pthread_mutex_lock(&queues_lock);
	struct requested_queue *q = queues;
	while (q && q->queue != queue)
		q = q->next;
	if (!q && (q = calloc(1, sizeof *q))) {
		q->next = queues;
		queues = q;
	}
	if (q) {
		q->queue = queue;
		q->properties = properties;
		q->listed = 0;
		for (size_t n = 0; list && n < MAX_PROPERTIES; n++) {
			q->list[n] = list[n];
			q->listed = (n + 1) * sizeof *list;
			if (n % 2 == 0 && list[n] == 0)
				break;
		}
	}
	pthread_mutex_unlock(&queues_lock);
}

/* Forgets a released queue at the address of one that was created as the program requested. */
static void queue_forget(cl_command_queue queue) {
	pthread_mutex_lock(&queues_lock);
	struct requested_queue **at = &queues;
	while (*at && (*at)->queue != queue)
		at = &(*at)->next;
	struct requested_queue *gone = *at;
	if (gone)
		*at = gone->next;
	pthread_mutex_unlock(&queues_lock);
	free(gone);
}

/* Returns 1 when the queue has profiling that the program has not requested; *asked is what the
 * program requested. */
static int queue_added(cl_command_queue queue, struct requested_queue *asked) {
	pthread_mutex_lock(&queues_lock);
	struct requested_queue *q = queues;
	while (q && q->queue != queue)
		q = q->next;
	int added = q && !(q->properties & CL_QUEUE_PROFILING_ENABLE);
	if (added && asked)
		*asked = *q;
	pthread_mutex_unlock(&queues_lock);
	return added;
}

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *errcode_ret) {
	cl_command_queue q = entry_driver.clCreateCommandQueue(context, device, properties | CL_QUEUE_PROFILING_ENABLE, errcode_ret);
	if (q) {
		queue_add(q, properties, NULL);
		return q;
	}
	q = entry_driver.clCreateCommandQueue(context, device, properties, errcode_ret);
	queue_forget(q);
	return q;
}

/* copy_properties returns the list with profiling, or NULL for a list that is too long or for a
 * queue on the device. */
static const cl_queue_properties *copy_properties(const cl_queue_properties *list, cl_queue_properties *to, cl_command_queue_properties *asked) {
	size_t n = 0;
	int found = 0;
	*asked = 0;
	for (; list && list[n]; n += 2) {
		if (n + 5 > MAX_PROPERTIES)
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
	cl_queue_properties list[MAX_PROPERTIES];
	cl_command_queue_properties asked;
	const cl_queue_properties *with = copy_properties(properties, list, &asked);
	cl_command_queue q = with ? entry_driver.clCreateCommandQueueWithProperties(context, device, with, errcode_ret) : NULL;
	if (q) {
		queue_add(q, asked, properties);
		return q;
	}
	q = entry_driver.clCreateCommandQueueWithProperties(context, device, properties, errcode_ret);
	queue_forget(q);
	return q;
}

/* answer_list answers CL_QUEUE_PROPERTIES_ARRAY with the program's own list. */
static cl_int answer_list(const struct requested_queue *asked, size_t size, void *value, size_t *size_ret) {
	if (value && size < asked->listed)
		return CL_INVALID_VALUE;
	if (value)
		memcpy(value, asked->list, asked->listed);
	if (size_ret)
		*size_ret = asked->listed;
	return CL_SUCCESS;
}

static cl_int CL_API_CALL queue_info(cl_command_queue queue, cl_command_queue_info name, size_t size, void *value, size_t *size_ret) {
	struct requested_queue asked;
	cl_int status = entry_driver.clGetCommandQueueInfo(queue, name, size, value, size_ret);
	if ((name != CL_QUEUE_PROPERTIES && name != CL_QUEUE_PROPERTIES_ARRAY) || !queue_added(queue, &asked))
		return status;
	if (name == CL_QUEUE_PROPERTIES_ARRAY)
		return answer_list(&asked, size, value, size_ret);
	if (status == CL_SUCCESS && value && size >= sizeof(cl_command_queue_properties))
		*(cl_command_queue_properties *)value &= ~(cl_command_queue_properties)CL_QUEUE_PROFILING_ENABLE;
	return status;
}

static cl_int CL_API_CALL profiling_info(cl_event event, cl_profiling_info name, size_t size, void *value, size_t *size_ret) {
	cl_command_queue queue = NULL;
	if (event && entry_driver.clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL) == CL_SUCCESS && queue && queue_added(queue, NULL))
		return CL_PROFILING_INFO_NOT_AVAILABLE;
	return entry_driver.clGetEventProfilingInfo(event, name, size, value, size_ret);
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

static void change(void) {
	changed = entry_driver;
	if (entry_driver.clCreateCommandQueue)
		changed.clCreateCommandQueue = create_queue;
	if (entry_driver.clCreateCommandQueueWithProperties)
		changed.clCreateCommandQueueWithProperties = create_queue_with;
	changed.clGetCommandQueueInfo = queue_info;
	changed.clGetEventProfilingInfo = profiling_info;
}

EXPORTED cl_int CL_API_CALL clInitLayer(cl_uint num_entries, const cl_icd_dispatch *next, cl_uint *num_entries_ret, const cl_icd_dispatch **layer) {
	if (!next || !num_entries_ret || !layer)
		return CL_INVALID_VALUE;
	memcpy(&entry_driver, next, (num_entries < entries ? num_entries : entries) * sizeof(void *));
	recorded = entry_driver;
	if (record_open()) {
		pthread_atfork(NULL, NULL, record_forked);
		entry_sizes = 1;
		change();
		entry_next = &changed;
		recorded = changed;
		record_overlay(&recorded);
	}
	*num_entries_ret = num_entries < entries ? num_entries : entries;
	*layer = &recorded;
	return CL_SUCCESS;
}
