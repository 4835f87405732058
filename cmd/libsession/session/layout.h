/* layout.h: bulk bytes in the program's memory: slices of rows, each row a contiguous run of bytes.
 * Layer: session. */
#ifndef OUTBOARD_LAYOUT_H
#define OUTBOARD_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

struct layout {
	unsigned char *base;
	uint64_t row, rows, row_pitch, slices, slice_pitch; /* bytes, count, bytes, count, bytes */
};

static inline struct layout layout_flat(const void *base, uint64_t size) {
	return (struct layout){(unsigned char *)base, size, 1, size, 1, size};
}
static inline uint64_t layout_size(const struct layout *l) { return l ? l->row * l->rows * l->slices : 0; }
/* Returns the same bytes as fewer, longer rows, where the pitches leave no gaps. */
struct layout layout_coalesce(struct layout);

/* A position in a layout. */
struct cursor {
	const struct layout *layout;
	uint64_t slice, row, column;
};
struct cursor cursor_at(const struct layout *, uint64_t offset);
/* Copy n bytes from or to the layout, and advance the cursor. */
void layout_gather(struct cursor *, unsigned char *to, size_t n);
void layout_scatter(struct cursor *, const unsigned char *from, size_t n);

#endif
