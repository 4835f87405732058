/* tree.h: the headers that travel, and where they lie on the other side.
 *
 * They keep their places relative to each other, so that whatever one includes relative to itself is found. A header has two
 * paths: the one under which this machine opens it, and its wire path, which is absolute, without "." and "..", and in
 * which the directories that options name are spelt so that no compiler's idea of quoting matters.
 */
#ifndef OUTBOARD_TREE_H
#define OUTBOARD_TREE_H

#include <stddef.h>

struct laid {
	char *native, *wire;
	unsigned char *data;
	size_t size;
	int keep; /* lies there only so that its directory exists */
};

struct tree {
	struct laid *files;
	size_t count, bytes;
	unsigned short *table; /* by wire path: index + 1 */
	char *refusal;
	int memory_out;
};

int tree_new(struct tree *);
void tree_free(struct tree *);
/* Takes the file dir/name if there is one; 1 when it lies in the tree now. */
int tree_take(struct tree *, const char *native_dir, const char *wire_dir, const char *name, size_t name_size);
/* The parts of a path before the last '/'. Malloc'ed. */
char *path_dir(const char *path);
/* The wire path of an absolute directory. */
char *path_wire(const char *native);
/* "dir/name". */
char *path_join(const char *dir, const char *name, size_t name_size);
/* What a wire path looks like to a person. */
char *path_unwire(const char *wire);

#endif
