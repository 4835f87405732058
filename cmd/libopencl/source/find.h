/* find.h: a search for the headers that sources include. Layer: source. */
#ifndef OUTBOARD_FIND_H
#define OUTBOARD_FIND_H

#include "include.h"
#include "tree.h"

struct search_dir {
	char *native, *wire, *given;
	size_t start, end; /* of its option, or of the macro's value */
	int macro;         /* an absolute path that -D assigns to a macro: searched only for names composed by macros */
	int used;
};

struct define {
	char *name, *body;
};

struct macro_include { /* #include MACRO */
	char *name, *argument; /* argument: NULL unless it is #include MACRO(argument) */
	long base;
	int next, resolved;
};

struct finder {
	struct tree tree;
	struct search_dir *dirs; /* the first is the working directory */
	size_t dir_count;
	struct define *defines;
	size_t define_count;
	struct macro_include *macro_includes;
	size_t macro_include_count;
	long base;    /* index of the file being read, or -1 */
	int absolute; /* a header was added by its absolute name */
	int memory_out;
};

/* Searches, given the compiler options and an absolute working directory. Returns 0, or -1 when
 * there is no memory; call finder_free in both cases. Running out of memory during the search sets
 * memory_out or tree.memory_out. */
int finder_run(struct finder *, const char *options, const struct include_source *, size_t count, const char *directory);
void finder_free(struct finder *);

#endif
