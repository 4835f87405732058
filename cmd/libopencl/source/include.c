/* include.c: the headers that a build sends: their wire form, the options that name their
 * directories, and the translation of their names in logs. Layer: source. */
#define _GNU_SOURCE
#include "find.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char prefix[] = "/outboard-include/0";

/* Reduces *common to the length of the directory prefix that the paths share: that part is not
 * sent. */
static void shorten(const char *path, const char *first, size_t *common) {
	size_t n = 0;
	while (n < *common && path[n] && path[n] == first[n])
		n++;
	while (n && !((path[n] == 0 || path[n] == '/') && (first[n] == 0 || first[n] == '/')))
		n--;
	*common = n;
}

static size_t common_root(const struct finder *f, const char **root) {
	size_t common = 0;
	*root = f->absolute ? "" : NULL;
	for (size_t i = 0; i < f->dir_count; i++) {
		if (!f->dirs[i].used)
			continue;
		if (!*root)
			*root = f->dirs[i].wire, common = strlen(*root);
		shorten(f->dirs[i].wire, *root, &common);
	}
	for (size_t i = 0; *root && i < f->tree.count; i++) {
		char *dir = path_dir(f->tree.files[i].wire);
		if (dir)
			shorten(dir, *root, &common);
		else
			common = 0;
		free(dir);
	}
	return common;
}

static size_t put(unsigned char *to, const void *bytes, size_t size) {
	uint64_t n = size;
	size_t padded = (size + 7) & ~(size_t)7;
	if (to) {
		memcpy(to, &n, 8);
		memset(to + 8, 0, padded);
		if (size)
			memcpy(to + 8, bytes, size);
	}
	return 8 + padded;
}

/* Writes the files' wire form to `to`, unless it is NULL, and returns its size. */
static size_t put_files(unsigned char *to, const struct tree *t, size_t root) {
	uint64_t count = t->count;
	size_t at = 8;
	if (to)
		memcpy(to, &count, 8);
	for (size_t i = 0; i < t->count; i++) {
		const struct sent_file *file = &t->files[i];
		char *path = path_join("", file->wire + root, strlen(file->wire + root)); /* "/" + "/dir/x.h" */
		if (!path)
			return 0;
		path[0] = '0';
		at += put(to ? to + at : NULL, path, strlen(path));
		if (to && file->size)
			scan_relocate((char *)file->data, file->size);
		at += put(to ? to + at : NULL, file->data, file->size);
		free(path);
	}
	return at;
}

static int make_files(struct includes *out, const struct finder *f, size_t root) {
	out->file_count = f->tree.count;
	if (!f->tree.count)
		return 0;
	out->files_size = put_files(NULL, &f->tree, root);
	out->files = out->files_size ? malloc(out->files_size) : NULL;
	return out->files && put_files(out->files, &f->tree, root) == out->files_size ? 0 : -1;
}

static int by_length(const void *a, const void *b) {
	size_t x = strlen(((const struct include_name *)a)->wire), y = strlen(((const struct include_name *)b)->wire);
	return x < y ? 1 : x > y ? -1 : 0;
}

static int add_name(struct includes *out, const char *wire, char *given) {
	struct include_name n = {malloc(sizeof prefix + strlen(wire)), given};
	if (n.wire)
		stpcpy(stpcpy(n.wire, prefix), wire);
	out->names[out->name_count++] = n;
	return n.wire && n.given ? 0 : -1;
}

static int make_names(struct includes *out, const struct finder *f, const char *first, size_t root) {
	out->names = calloc(f->dir_count + 1, sizeof *out->names);
	char *whole = strndup(first, root);
	int status = out->names && whole ? 0 : -1;
	for (size_t i = 0; status == 0 && i < f->dir_count; i++)
		if (f->dirs[i].used)
			status = add_name(out, f->dirs[i].wire + root, strdup(f->dirs[i].given));
	if (status == 0)
		status = add_name(out, "", path_unwire(whole));
	free(whole);
	if (status == 0)
		qsort(out->names, out->name_count, sizeof *out->names, by_length);
	return status;
}

static char *put_option(char *to, const struct search_dir *d, size_t root) {
	return stpcpy(stpcpy(stpcpy(to, d->macro ? "" : "-I"), prefix), d->wire + root);
}

static int make_options(struct includes *out, const char *options, const struct finder *f, size_t root) {
	const char *text = options ? options : "";
	size_t room = strlen(text) + sizeof prefix + 8, done = 0;
	for (size_t i = 0; i < f->dir_count; i++)
		room += sizeof prefix + 4 + strlen(f->dirs[i].wire);
	char *to = out->options = malloc(room);
	if (!to)
		return -1;
	*to = 0;
	if (f->dirs[0].used) {
		to = put_option(to, &f->dirs[0], root);
		if (*text)
			to = stpcpy(to, " ");
	}
	for (size_t i = 1; i < f->dir_count; i++) {
		if (!f->dirs[i].used)
			continue;
		to = mempcpy(to, text + done, f->dirs[i].start - done);
		to = put_option(to, &f->dirs[i], root);
		done = f->dirs[i].end;
	}
	to = stpcpy(to, text + done);
	if (f->absolute) /* searched last */
		stpcpy(stpcpy(to, to > out->options ? " -I" : "-I"), prefix);
	return 0;
}

static int make_result(struct includes *out, const char *options, struct finder *f) {
	if (f->memory_out || f->tree.memory_out)
		return -1;
	if (f->tree.refusal) {
		out->refusal = f->tree.refusal;
		f->tree.refusal = NULL;
		return 0;
	}
	const char *first;
	size_t root = common_root(f, &first);
	if (!first) { /* no header found, and no directories to replace */
		out->options = options ? strdup(options) : NULL;
		return options && !out->options ? -1 : 0;
	}
	return make_files(out, f, root) | make_names(out, f, first, root) | make_options(out, options, f, root);
}

static int find_in(struct includes *out, const char *options, const struct include_source *sources, size_t count, const char *directory) {
	struct finder f;
	int status = finder_run(&f, options, sources, count, directory);
	if (status == 0)
		status = make_result(out, options, &f);
	finder_free(&f);
	return status;
}

int includes_find(struct includes *out, const char *options, const struct include_source *sources, size_t count, const char *directory) {
	int saved = errno;
	*out = (struct includes){0};
	char *own = directory ? NULL : getcwd(NULL, 0); /* NULL when it was removed: then only absolute directories are found */
	int status = find_in(out, options, sources, count, directory ? directory : own ? own : "/proc/self/cwd");
	free(own);
	if (status != 0)
		includes_free(out);
	errno = saved;
	return status;
}

static int ends_name(char c) {
	return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' || c == '+' || c == '=');
}

/* Returns the name whose wire form begins at `at`, or NULL. */
static const struct include_name *name_at(const struct includes *in, const char *at, size_t left) {
	for (size_t i = 0; i < in->name_count; i++) {
		size_t n = strlen(in->names[i].wire);
		if (n <= left && memcmp(at, in->names[i].wire, n) == 0 && (n == left || ends_name(at[n])))
			return &in->names[i];
	}
	return NULL;
}

char *includes_restore(const struct includes *in, const char *log, size_t size) {
	size_t most = 1;
	for (size_t i = 0; i < in->name_count; i++) {
		size_t n = strlen(in->names[i].given) / (sizeof prefix - 1) + 1;
		most = n > most ? n : most;
	}
	char *out = malloc(size * most + 1), *end = out;
	for (size_t i = 0; out && i < size;) {
		const struct include_name *name = log[i] == '/' ? name_at(in, log + i, size - i) : NULL;
		if (!name) {
			*end++ = log[i++];
			continue;
		}
		end = stpcpy(end, name->given);
		i += strlen(name->wire);
	}
	if (end)
		*end = 0;
	return out;
}

void includes_free(struct includes *in) {
	for (size_t i = 0; i < in->name_count; i++)
		free(in->names[i].wire), free(in->names[i].given);
	free(in->options), free(in->files), free(in->names), free(in->refusal);
	*in = (struct includes){0};
}
