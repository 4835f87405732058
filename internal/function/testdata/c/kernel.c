#include "outboard.h"

static uint8_t request[256], list[1024];

static const char source[] = "kernel void upper(global char *a, uint n) {}";

/* Has a device do something to the request, which is the answer then. */
OUTBOARD_ENTRY(handle) {
	int32_t size = outboard_request_read(request, sizeof request, 0);
	int32_t gpu = outboard_import("device:gpu", 10);
	uint8_t *at = outboard_put64(outboard_put32(outboard_put8(list, 1), 1), size);
	at = outboard_put64(outboard_put32(outboard_put8(at, 7), 1), 0);
	at = outboard_put32(outboard_put32(at, (uint32_t)(uintptr_t)request), size);
	at = outboard_put(outboard_put(outboard_put32(outboard_put8(at, 3), 2), source, sizeof source - 1), "", 0);
	at = outboard_put(outboard_put32(outboard_put8(at, 4), 2), "upper", 5);
	at = outboard_put64(outboard_put64(outboard_put8(at, 1), size), 0);
	at = outboard_put32(outboard_put8(outboard_put8(at, 2), 2), 1);
	at = outboard_put(outboard_put8(at, 1), "\x07\x00\x00\x00", 4);
	at = outboard_put64(outboard_put32(outboard_put8(at, 5), 1), 0);
	at = outboard_put32(at, size);
	int32_t failed = outboard_device_do(gpu, list, at - list);
	size = outboard_result_read(request, sizeof request, 0);
	outboard_response_write(request, size);
	return failed;
}
