#include "outboard.h"

OUTBOARD_WINDOW(window, 1 << 20)

/* Adds one to each byte of the request, where it lies, and answers with the same place. */
OUTBOARD_ENTRY(handle) {
	int64_t at = outboard_request_offset();
	int32_t size = outboard_request_size();
	if (at < 0)
		return 1;
	for (int32_t i = 0; i < size; i++)
		window[at + i]++;
	return outboard_response_place(at, size);
}

/* Answers with the sum of the bytes of a named arena and with the secret. */
OUTBOARD_ENTRY(lend) {
	static uint8_t answer[64];
	uint64_t size = 0;
	uint8_t *board = outboard_arena_map(outboard_import("arena:board", 11));
	outboard_result_read(&size, sizeof size, 0);
	for (uint64_t i = 0; board && i < size; i++)
		answer[0] += board[i];
	if (outboard_secret(outboard_import("secret:key", 10)) != 0)
		return 1;
	int32_t n = outboard_result_read(answer + 1, sizeof answer - 1, 0);
	return outboard_response_write(answer, n + 1);
}
