/* tree.h: the headers that are sent, and their paths on the wire. Layer: source.
 *
 * Headers keep their positions relative to each other, so that relative includes resolve. A header
 * has two paths: the native one opens it on this machine; the wire path is absolute, without "."
 * and "..", and spells the directories that options name so that no compiler's quoting rules
 * matter. */
#ifndef OUTBOARD_TREE_H
#define OUTBOARD_TREE_H

#include <stddef.h>

struct sent_file {
	char *native, *wire;
	unsigned char *data;
	size_t size;
	int placeholder; /* sent only to create its directory */
};

struct tree {
	struct sent_file *files;
	size_t count, bytes;
	unsigned short *table; /* by wire path: index + 1 */
	char *refusal;
	int memory_out;
};

int tree_new(struct tree *);
void tree_free(struct tree *);
/* Adds the file dir/name if it exists; 1 when the tree contains it. */
int tree_add(struct tree *, const char *native_dir, const char *wire_dir, const char *name, size_t name_size);
/* Returns the part of a path before the last '/'. Malloc'ed. */
char *path_dir(const char *path);
/* Returns the wire path of an absolute directory. */
char *path_wire(const char *native);
/* Returns "dir/name". */
char *path_join(const char *dir, const char *name, size_t name_size);
/* Returns the readable form of a wire path. */
char *path_unwire(const char *wire);

#endif
