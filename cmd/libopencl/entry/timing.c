/* timing.c: in a layer, the device's times and other facts that are queried from the driver.
 * Layer: entry. */
#include "entry.h"

const struct _cl_icd_dispatch *entry_next;
struct _cl_icd_dispatch entry_driver;
int entry_sizes;

struct timed {
	cl_event event;
	uint64_t number;
};

enum { BATCH = 64, MAX_TIMED = 1 << 16 };

static pthread_mutex_t timed_lock = PTHREAD_MUTEX_INITIALIZER;
static struct timed *timed;
static size_t timed_count, timed_room;

/* store_times returns 0 while the command is not complete. */
static int store_times(const struct timed *t) {
	cl_int status = CL_COMPLETE;
	cl_ulong queued = 0, start = 0, end = 0;
	if (entry_driver.clGetEventInfo(t->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL) != CL_SUCCESS)
		status = -1;
	if (status > CL_COMPLETE)
		return 0;
	if (status == CL_COMPLETE &&
		entry_driver.clGetEventProfilingInfo(t->event, CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, NULL) == CL_SUCCESS &&
		entry_driver.clGetEventProfilingInfo(t->event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL) == CL_SUCCESS &&
		entry_driver.clGetEventProfilingInfo(t->event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL) == CL_SUCCESS)
		record_device(t->number, queued, start, end);
	entry_driver.clReleaseEvent(t->event);
	return 1;
}

/* store_complete checks the oldest commands, at most `most` of them. Called under the lock. */
static void store_complete(size_t most) {
	size_t kept = 0, n = timed_count < most ? timed_count : most;
	for (size_t i = 0; i < n; i++)
		if (!store_times(&timed[i]))
			timed[kept++] = timed[i];
	memmove(timed + kept, timed + n, (timed_count - n) * sizeof *timed);
	timed_count -= n - kept;
}

static int timed_grow(void) {
	size_t room = timed_room ? 2 * timed_room : 4 * BATCH;
	struct timed *t = realloc(timed, room * sizeof *t);
	if (!t)
		return 0;
	timed = t;
	timed_room = room;
	return 1;
}

cl_event *entry_event(cl_command_queue queue, cl_event *wanted, cl_event *own) {
	(void)queue;
	return wanted || !entry_sizes ? wanted : own;
}

void entry_command(const struct record_call *call, cl_event *wanted, cl_event own) {
	if (!entry_sizes || (call->head.flags & RECORD_FAILED))
		return;
	cl_event event = own;
	if (wanted && (event = *wanted))
		entry_driver.clRetainEvent(event);
	if (!event)
		return;
	pthread_mutex_lock(&timed_lock);
	if (timed_count % BATCH == BATCH - 1)
		store_complete(BATCH);
	if (timed_count < MAX_TIMED && (timed_count < timed_room || timed_grow()))
		timed[timed_count++] = (struct timed){event, call->number};
	else
		entry_driver.clReleaseEvent(event);
	pthread_mutex_unlock(&timed_lock);
}

void entry_waited(void) {
	if (!entry_sizes)
		return;
	pthread_mutex_lock(&timed_lock);
	store_complete(timed_count);
	pthread_mutex_unlock(&timed_lock);
}

uint64_t entry_image_size(cl_mem image, const size_t *region) {
	size_t element = 0;
	if (!region || !entry_driver.clGetImageInfo || entry_driver.clGetImageInfo(image, CL_IMAGE_ELEMENT_SIZE, sizeof element, &element, NULL) != CL_SUCCESS)
		return 0;
	return (uint64_t)element * region[0] * region[1] * region[2];
}

void entry_device(cl_device_id device) {
	char name[1024] = "";
	cl_device_type type = 0;
	if (!entry_sizes || entry_driver.clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, NULL) != CL_SUCCESS)
		return;
	(void)entry_driver.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
	record_name((uintptr_t)device, (uint16_t)type, name);
}
