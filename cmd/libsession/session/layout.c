/* layout.c: copies bulk bytes between a layout in the program's memory and contiguous memory.
 * Layer: session. */
#include "layout.h"

#include <string.h>

struct layout layout_coalesce(struct layout l) {
	for (int i = 0; i < 2; i++) {
		if (l.rows > 1 && l.row_pitch == l.row) {
			l.row *= l.rows;
			l.rows = 1;
		}
		if (l.rows == 1 && l.slices > 1) {
			l.rows = l.slices;
			l.row_pitch = l.slice_pitch;
			l.slices = 1;
		}
	}
	if (l.rows == 1)
		l.row_pitch = l.row;
	if (l.slices == 1)
		l.slice_pitch = l.row_pitch * l.rows;
	return l;
}

struct cursor cursor_at(const struct layout *l, uint64_t offset) {
	struct cursor c = {.layout = l};
	if (offset) {
		c.column = offset % l->row;
		c.row = offset / l->row % l->rows;
		c.slice = offset / l->row / l->rows;
	}
	return c;
}

/* next_run returns the next contiguous piece at the cursor, and advances the cursor past it. */
static unsigned char *next_run(struct cursor *c, size_t limit, size_t *n) {
	const struct layout *l = c->layout;
	unsigned char *at = l->base + c->slice * l->slice_pitch + c->row * l->row_pitch + c->column;
	uint64_t left = l->row - c->column;
	*n = left < limit ? (size_t)left : limit;
	c->column += *n;
	if (c->column == l->row) {
		c->column = 0;
		c->row++;
	}
	if (c->row == l->rows) {
		c->row = 0;
		c->slice++;
	}
	return at;
}

void layout_gather(struct cursor *c, unsigned char *to, size_t n) {
	while (n > 0) {
		size_t k;
		unsigned char *at = next_run(c, n, &k);
		memcpy(to, at, k);
		to += k;
		n -= k;
	}
}

void layout_scatter(struct cursor *c, const unsigned char *from, size_t n) {
	while (n > 0) {
		size_t k;
		unsigned char *at = next_run(c, n, &k);
		memcpy(at, from, k);
		from += k;
		n -= k;
	}
}
