/* Prints the results of includes_find for options, a working directory and a source on standard
 * input, for the Go test.
 *
 *   include DIRECTORY OPTIONS|-          result of a search
 *   include -log DIRECTORY OPTIONS LOG   a log with the names restored
 *   include -fuzz SEED COUNT             random texts and options; only crashes and sanitizers matter
 *   include -words OPTIONS               the directories and macros that options name
 *   include -relocate                    the text with its absolute names made relative */
#define _GNU_SOURCE
#include "include.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_input(size_t *size) {
	char *text = malloc(1 << 22);
	*size = fread(text, 1, 1 << 22, stdin);
	return text;
}

static void print_files(const struct includes *in) {
	uint64_t count = 0, n;
	const unsigned char *at = in->files;
	if (at)
		memcpy(&count, at, 8), at += 8;
	for (; count; count--) {
		memcpy(&n, at, 8);
		printf("%.*s:", (int)n, (const char *)at + 8);
		at += 8 + ((n + 7) & ~7ull);
		memcpy(&n, at, 8);
		printf("%d\n", (int)n);
		at += 8 + ((n + 7) & ~7ull);
	}
	if (at != in->files + in->files_size)
		abort();
}

static int find(const char *directory, const char *options) {
	size_t size;
	char *text = read_input(&size);
	struct include_source source = {text, size};
	struct includes in;
	if (includes_find(&in, strcmp(options, "-") ? options : NULL, &source, 1, directory) != 0)
		return 1;
	printf("options %s\n", in.options ? in.options : "NULL");
	if (in.refusal)
		printf("refusal %s", in.refusal);
	print_files(&in);
	includes_free(&in);
	free(text);
	return 0;
}

static int restore(const char *directory, const char *options, const char *log) {
	struct includes in;
	size_t size;
	char *text = read_input(&size);
	struct include_source source = {text, size};
	if (includes_find(&in, options, &source, 1, directory) != 0)
		return 1;
	char *out = includes_restore(&in, log, strlen(log));
	printf("%s", out);
	free(out), free(text);
	includes_free(&in);
	return 0;
}

static int words(const char *text) {
	struct options o;
	if (options_parse(&o, text) != 0)
		return 1;
	for (size_t i = 0; i < o.dir_count; i++)
		printf("I[%s] %.*s\n", o.dirs[i].path, (int)(o.dirs[i].end - o.dirs[i].start), text + o.dirs[i].start);
	for (size_t i = 0; i < o.define_count; i++)
		printf("D[%s]\n", o.defines[i].text);
	options_free(&o);
	return 0;
}

static int relocate(void) {
	size_t size;
	char *text = read_input(&size), *exact = malloc(size);
	memcpy(exact, text, size);
	scan_relocate(exact, size);
	fwrite(exact, 1, size, stdout);
	free(exact), free(text);
	return 0;
}

/* Random sequences of meaningful pieces and of random bytes. */
static size_t random_text(unsigned *seed, char *out, size_t room) {
	static const char *const pieces[] = {"#include ", "\"a.h\"", "<sub/b.h>", "\n", "\\\n", "/*", "*/", "//", "\"", "'", "\\", "#define X ", "X", "..", "/",
		"#if __has_include(", ")", "%:", "#include_next ", " ", "-I", "-Isub", "-I ", "\"my dir\"", "../", "sub/", "-DX=\\\"a.h\\\"", "-DX=/tmp", "X(", "X/a.h", ")", "\t", "-D"};
	size_t n = 0;
	for (int k = rand_r(seed) % 40; k > 0; k--) {
		char byte[2] = {(char)(rand_r(seed) % 256), 0};
		const char *piece = rand_r(seed) % 8 ? pieces[(unsigned)rand_r(seed) % (sizeof pieces / sizeof *pieces)] : byte;
		size_t size = piece == byte ? 1 : strlen(piece);
		if (n + size >= room)
			break;
		memcpy(out + n, piece, size);
		n += size;
	}
	out[n] = 0;
	return n;
}

static int fuzz(const char *directory, unsigned seed, long count) {
	char text[4096], options[4096], log[8192];
	for (long i = 0; i < count; i++) {
		size_t size = random_text(&seed, text, sizeof text);
		random_text(&seed, options, sizeof options);
		struct include_source source = {text, size};
		struct includes in;
		if (includes_find(&in, options, &source, 1, directory) != 0)
			return 1;
		snprintf(log, sizeof log, "%s%s /outboard-include/0/sub/x.h", in.options ? in.options : "", text);
		free(includes_restore(&in, log, strlen(log)));
		scan_relocate(text, size);
		includes_free(&in);
	}
	return 0;
}

int main(int argc, char **argv) {
	if (argc == 5 && !strcmp(argv[1], "-fuzz"))
		return fuzz(argv[2], (unsigned)atoi(argv[3]), atol(argv[4]));
	if (argc == 5 && !strcmp(argv[1], "-log"))
		return restore(argv[2], argv[3], argv[4]);
	if (argc == 3 && !strcmp(argv[1], "-words"))
		return words(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "-relocate"))
		return relocate();
	return argc == 3 ? find(argv[1], argv[2]) : 2;
}
