// A transaction of each operation, as the response.
#include "outboard.h"

OUTBOARD_ENTRY(handle) {
	static uint8_t list[512];
	uint8_t *end = list;
	end = outboard_op(end, OUTBOARD_PUT, "a", 1, 0, "one", 3);
	end = outboard_op(end, OUTBOARD_DELETE, "b", 1, 0, 0, 0);
	end = outboard_op(end, OUTBOARD_ADD, "left", 4, -1, "0", 1);
	end = outboard_op(end, OUTBOARD_MISSING, "c", 1, 0, 0, 0);
	end = outboard_op(end, OUTBOARD_AT, "d", 1, 7, 0, 0);
	end = outboard_op(end, OUTBOARD_PUT_NEW, "e", 1, 0, "x", 1);
	end = outboard_op(end, OUTBOARD_PUT_FOR, "f", 1, 1500, "y", 1);
	outboard_response_write(list, end - list);
	return 0;
}
