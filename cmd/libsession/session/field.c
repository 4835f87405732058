/* field.c: the fields of a body: words and arrays, with every size checked against the remaining
 * bytes. Layer: session. */
#include "state.h"

#include <stdlib.h>


uint64_t get_word(struct reply *r) {
	uint64_t v;
	if (r->bad || r->left < 8) {
		r->bad = 1;
		return 0;
	}
	memcpy(&v, r->at, 8);
	r->at += 8;
	r->left -= 8;
	return v;
}

const void *get_array(struct reply *r, uint64_t *count, size_t element) {
	uint64_t n = get_word(r);
	*count = 0;
	if (r->bad || n == UINT64_MAX)
		return NULL;
	if (n > r->left / element || wire_padded((size_t)n * element) > r->left) {
		r->bad = 1;
		return NULL;
	}
	const void *p = r->at;
	size_t size = wire_padded((size_t)n * element);
	r->at += size;
	r->left -= size;
	*count = n;
	return p;
}

struct blob get_blob(struct reply *r) {
	uint64_t n;
	const void *p = get_array(r, &n, 1);
	if (!p)
		return (struct blob){NULL, 0};
	struct blob b = {malloc((size_t)n + 1), (size_t)n};
	if (!b.data)
		return (struct blob){NULL, 0};
	memcpy(b.data, p, (size_t)n);
	b.data[n] = 0; /* a text is terminated even when its size is ignored */
	return b;
}

void reply_free(struct reply *r) {
	if (r->body.data != r->room)
		free(r->body.data);
	r->body = (struct blob){NULL, 0};
	r->at = NULL;
	r->left = 0;
}

int32_t reply_malformed(struct session *s) {
	session_die(s, DEAD_LOST, "the session was ended: the worker sent a malformed reply");
	return s->options.dead_status;
}
