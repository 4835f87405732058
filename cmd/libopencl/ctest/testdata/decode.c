/* Decodes messages of a hostile worker: reads {u32 size, bytes} from standard input until its end
 * and answers with a byte for each. The first byte of an input selects the decoder, the rest is the
 * body, in an allocation of exactly its size, for the sanitizer. Decoded values are read to their
 * last byte. */
#include "library.h"
#include "program.h"

#include <stdio.h>

static volatile unsigned char sink;

static void touch(const void *at, uint64_t size) {
	const unsigned char *b = at;
	for (uint64_t i = 0; i < size; i++)
		sink = (unsigned char)(sink ^ b[i]);
}

static void facts(const struct notice *n) {
	struct facts *f = facts_new(n->body, n->size);
	if (!f)
		return;
	int32_t status;
	size_t size;
	uint64_t key[4] = {0};
	memcpy(key, n->body, n->size < sizeof key ? n->size : sizeof key);
	/* The first fact, by the key in its head, and a key that hardly any fact has. */
	for (int i = 0; i < 2; i++) {
		const void *value = facts_find(f, (uint16_t)key[0], key[1], key[2], (uint16_t)(key[0] >> 16), (uint32_t)(key[0] >> 32) + (uint32_t)i, &status, &size);
		if (value)
			touch(value, size);
	}
	facts_drop(f);
}

static void decode(unsigned which, const struct notice *n) {
	struct notice_snapshot snapshot;
	struct notice_failed failed;
	struct notice_event event;
	struct notice_data data;
	struct notice_output output;
	struct notice_context_error error;
	switch (which % 7) {
	case 0:
		if (decode_snapshot(n, &snapshot) == 0)
			touch(snapshot.facts, snapshot.facts_size);
		break;
	case 1:
		(void)decode_failed(n, &failed);
		break;
	case 2:
		if (decode_event(n, &event) == 0)
			touch(event.times, event.times_count * sizeof *event.times);
		break;
	case 3:
		(void)decode_data(n, &data);
		break;
	case 4:
		if (decode_output(n, &output) == 0)
			touch(output.text, output.text_size);
		break;
	case 5:
		if (decode_context_error(n, &error) == 0) {
			touch(error.text, error.text_size);
			touch(error.private, error.private_size);
		}
		break;
	case 6:
		facts(n);
		break;
	}
}

int main(void) {
	uint32_t size;
	while (fread(&size, sizeof size, 1, stdin) == 1) {
		unsigned char which = 0, *body = NULL;
		size_t n = size ? size - 1 : 0;
		if (size && fread(&which, 1, 1, stdin) != 1)
			return 2;
		if (!(body = malloc(n ? n : 1)) || fread(body, 1, n, stdin) != n)
			return 2;
		decode(which, &(struct notice){.op = which, .body = body, .size = n});
		free(body);
		putchar('.');
		fflush(stdout);
	}
	return 0;
}
