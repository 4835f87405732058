/* include.h: headers of the program's machine, for a compiler on another one. Layer: source.
 *
 * Independent of OpenCL and sessions: strings in, strings and bytes out, so that it can be tested
 * alone. */
#ifndef OUTBOARD_INCLUDE_H
#define OUTBOARD_INCLUDE_H

#include <stddef.h>
#include <stdint.h>

/* Limits of one build. A message holds 64 MiB, including options and names. */
enum {
	INCLUDE_FILES = 4096,
	INCLUDE_BYTES = 63 << 20,
	INCLUDE_GUESSES = 1024,          /* files sent only because a macro may name them */
	INCLUDE_GUESS_BYTES = 16 << 20,
};

/* ---- options.c */

struct option_dir {
	size_t start, end; /* of the whole -I option in the text */
	char *path;        /* without quotes and backslashes */
};

struct option_define {
	size_t start, end; /* of the definition after -D in the text, including quotes */
	char *text;        /* a copy of that part */
};

struct options {
	struct option_dir *dirs;
	size_t dir_count;
	struct option_define *defines;
	size_t define_count;
};

/* Returns 0, or -1 when there is no memory. */
int options_parse(struct options *, const char *text);
void options_free(struct options *);
/* Returns true when the word is one of the options. A word that ends with '=' matches any value;
 * *value then points past the '='. */
int options_have(const char *text, const char *word, const char **value);

/* ---- scan.c */

enum scan_kind { SCAN_QUOTED, SCAN_ANGLED, SCAN_MACRO, SCAN_DEFINE };

struct scan_item {
	enum scan_kind kind;
	const char *name; /* the header's, or the macro's */
	size_t name_size;
	const char *body; /* of a SCAN_DEFINE; of a SCAN_MACRO the text in parentheses, or NULL */
	size_t body_size;
	int next;         /* #include_next: the header may be in any directory */
};

/* Calls found for each item in order. Returns 0, or -1 when there is no memory. */
int scan_source(const char *text, size_t size, void (*found)(void *user, const struct scan_item *), void *user);
/* Makes the absolute names of #include directives relative to the root, in place: "/a/b.h" becomes
 * "a/b.h" after a blank, so that no other text moves. */
void scan_relocate(char *text, size_t size);

/* ---- include.c */

/* A directory's name in logs, and its name in the program's options. */
struct include_name {
	char *wire, *given;
};

struct includes {
	char *options;              /* sent in place of the program's; NULL when there are none */
	unsigned char *files;       /* include_files of docs/design/0004, NULL when there are none */
	size_t files_size;
	size_t file_count;
	struct include_name *names; /* longest first */
	size_t name_count;
	char *refusal;              /* the reason why the headers cannot be sent, for the build log; or NULL */
};

/* A source text to be compiled. */
struct include_source {
	const char *text;
	size_t size;
};

/* Finds the headers that the sources can include, given the options and the working directory
 * (NULL: the process's). Returns 0, or -1 when there is no memory. */
int includes_find(struct includes *, const char *options, const struct include_source *, size_t count, const char *directory);
/* Returns a copy of the log with the program's names of directories; NULL when there is no
 * memory. */
char *includes_restore(const struct includes *, const char *log, size_t size);
void includes_free(struct includes *);

#endif
