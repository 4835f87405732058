/* find.c: finds the headers of the program's machine that its sources include. Layer: source.
 *
 * Searches in the order of compilers: "x" in the directory of the including file, then, as <x>, in
 * the working directory (as PoCL does) and in the -I directories. Found headers are scanned in
 * turn. A header named by a macro is looked up through the macro's definitions, of which options
 * may contain a part of the path (-D INCLUDE_PATH=/usr/share/x with #include
 * TEXT(INCLUDE_PATH/y.h)); when that fails, every file below the directories that looks like a
 * header is sent. */
#define _GNU_SOURCE
#include "find.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int add_from_dirs(struct finder *f, const char *name, size_t size, int all) {
	int found = 0;
	for (size_t i = 0; i < f->dir_count && (all || !found); i++)
		if (!f->dirs[i].macro && tree_add(&f->tree, f->dirs[i].native, f->dirs[i].wire, name, size))
			found = f->dirs[i].used = 1;
	return found;
}

static int add_beside(struct finder *f, long base, const char *name, size_t size) {
	char *native = path_dir(f->tree.files[base].native), *wire = path_dir(f->tree.files[base].wire);
	int found = native && wire && tree_add(&f->tree, native, wire, name, size);
	f->memory_out |= !native || !wire;
	free(native), free(wire);
	return found;
}

static int add_header(struct finder *f, long base, int quoted, int next, const char *name, size_t size) {
	if (*name == '/') { /* the directive is made relative to the root: scan_relocate */
		int found = tree_add(&f->tree, "", "", name, size);
		f->absolute |= found;
		return found;
	}
	if (quoted && base >= 0 && add_beside(f, base, name, size) && !next)
		return 1;
	return add_from_dirs(f, name, size, next);
}

/* A path composed by macros that is absolute because of a macro of the options, whose value can be
 * replaced. */
static int add_by_macro(struct finder *f, const char *path) {
	for (size_t i = 0; i < f->dir_count; i++) {
		struct search_dir *d = &f->dirs[i];
		size_t n = strlen(d->native);
		if (d->macro && strncmp(path, d->native, n) == 0 && tree_add(&f->tree, d->native, d->wire, path + n, strlen(path + n)))
			return d->used = 1;
	}
	return 0;
}

static void add_define(struct finder *f, const char *name, size_t name_size, const char *body, size_t body_size) {
	struct define *grown = realloc(f->defines, (f->define_count + 1) * sizeof *grown);
	if (grown)
		f->defines = grown;
	struct define d = {strndup(name, name_size), strndup(body, body_size)};
	if (!grown || !d.name || !d.body) {
		free(d.name), free(d.body);
		f->memory_out = 1;
		return;
	}
	f->defines[f->define_count++] = d;
}

static void add_macro_include(struct finder *f, const struct scan_item *item) {
	struct macro_include *grown = realloc(f->macro_includes, (f->macro_include_count + 1) * sizeof *grown);
	if (grown)
		f->macro_includes = grown;
	char *name = strndup(item->name, item->name_size), *argument = item->body ? strndup(item->body, item->body_size) : NULL;
	if (!grown || !name || (item->body && !argument)) {
		free(name), free(argument);
		f->memory_out = 1;
		return;
	}
	f->macro_includes[f->macro_include_count++] = (struct macro_include){name, argument, f->base, item->next, 0};
}

static int names_header(const char *body, size_t size) {
	while (size && (*body == '\\' || *body == '\'' || *body == ' ' || *body == '\t'))
		body++, size--;
	return size && (*body == '"' || *body == '<' || *body == '_' || *body == '/' || *body == '.' || (*body >= 'A' && *body <= 'Z') || (*body >= 'a' && *body <= 'z'));
}

static void found_item(void *user, const struct scan_item *item) {
	struct finder *f = user;
	if (item->kind == SCAN_MACRO)
		add_macro_include(f, item);
	else if (item->kind != SCAN_DEFINE)
		add_header(f, f->base, item->kind == SCAN_QUOTED, item->next, item->name, item->name_size);
	else if (names_header(item->body, item->body_size)) /* most definitions are numbers */
		add_define(f, item->name, item->name_size, item->body, item->body_size);
}

static void read_source(struct finder *f, long base, const char *text, size_t size) {
	f->base = base;
	if (scan_source(text, size, found_item, f) != 0)
		f->memory_out = 1;
}

/* Scans every file that was found since index `from`. */
static size_t read_found(struct finder *f, size_t from) {
	for (; from < f->tree.count && !f->tree.refusal && !f->memory_out; from++)
		if (!f->tree.files[from].placeholder)
			read_source(f, (long)from, (const char *)f->tree.files[from].data, f->tree.files[from].size);
	return from;
}

static const char word_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

static int resolve_name(struct finder *f, const struct macro_include *w, const char *name, int depth);

/* Resolves "x", <x>, or another macro; in options with backslashes before the quotes. */
static int resolve_body(struct finder *f, const struct macro_include *w, const char *body, int depth) {
	body += strspn(body, " \t\\'");
	if (*body != '"' && *body != '<') {
		char *name = strndup(body, strspn(body, word_characters));
		int resolved = name && *name && resolve_name(f, w, name, depth + 1);
		free(name);
		return resolved;
	}
	size_t n = strcspn(body + 1, *body == '"' ? "\"" : ">");
	if (n && body[n] == '\\')
		n--;
	return n && add_header(f, w->base, *body == '"', w->next, body + 1, n);
}

static int resolve_name(struct finder *f, const struct macro_include *w, const char *name, int depth) {
	int resolved = 0;
	for (size_t i = 0; i < f->define_count && depth < 16; i++)
		if (strcmp(f->defines[i].name, name) == 0)
			resolved |= resolve_body(f, w, f->defines[i].body, depth);
	return resolved;
}

/* Returns the value of a macro, without quotes; *size is its length. NULL when it has none. */
static const char *value_of(const struct finder *f, const char *name, size_t name_size, size_t *size) {
	for (size_t i = 0; i < f->define_count; i++) {
		const struct define *d = &f->defines[i];
		if (strlen(d->name) != name_size || memcmp(d->name, name, name_size) != 0)
			continue;
		const char *value = d->body + strspn(d->body, " \t\\'\"<");
		*size = strcspn(value, "\\'\">\r\n");
		while (*size && (value[*size - 1] == ' ' || value[*size - 1] == '\t'))
			--*size;
		return value;
	}
	return NULL;
}

/* Returns the text after one pass of macro replacement; NULL when it is too long for a path. */
static char *expand(const struct finder *f, const char *text) {
	enum { LONGEST = 4096 };
	char *out = malloc(LONGEST), *end = out;
	while (out && *text) {
		size_t n = strspn(text, word_characters), size = n ? n : 1;
		const char *put = n ? value_of(f, text, n, &size) : NULL;
		put = put ? put : text;
		if (size >= (size_t)(LONGEST - (end - out))) {
			free(out);
			return NULL;
		}
		if (n || (*text != ' ' && *text != '\t' && *text != '"' && *text != '\r'))
			end = mempcpy(end, put, size);
		text += n ? n : 1;
	}
	if (out)
		*end = 0;
	return out;
}

/* Resolves #include TEXT(DIRECTORY/x.h): the outer macros are assumed to turn their argument into a
 * string. */
static int resolve_argument(struct finder *f, const struct macro_include *w) {
	const char *inner = strrchr(w->argument, '(');
	char *text = strdup(inner ? inner + 1 : w->argument);
	if (text)
		text[strcspn(text, ")")] = 0;
	for (int depth = 0; text && depth < 4; depth++) {
		char *path = expand(f, text);
		int resolved = path && *path && (*path == '/' ? add_by_macro(f, path) : add_header(f, w->base, 1, w->next, path, strlen(path)));
		free(text);
		text = path;
		if (resolved) {
			free(text);
			return 1;
		}
	}
	free(text);
	return 0;
}

/* A macro's definition may be in a file that another macro names, so all macro includes are tried
 * each time. */
static void resolve_macro_includes(struct finder *f) {
	for (size_t i = 0; i < f->macro_include_count; i++)
		f->macro_includes[i].resolved |= f->macro_includes[i].argument ? resolve_argument(f, &f->macro_includes[i]) : resolve_name(f, &f->macro_includes[i], f->macro_includes[i].name, 0);
}

static int looks_like_header(const char *name) {
	static const char *const suffixes[] = {".h", ".hh", ".hpp", ".hxx", ".cl", ".clh", ".clc", ".ocl", ".inc", ".inl", ".def", ".cuh", ".cfg", ".c"};
	const char *dot = strrchr(name, '.');
	for (size_t i = 0; dot && i < sizeof suffixes / sizeof *suffixes; i++)
		if (strcmp(dot, suffixes[i]) == 0)
			return 1;
	return 0;
}

struct guess {
	struct finder *f;
	struct search_dir *dir;
	size_t files, bytes; /* sizes of the tree at which guessing ends */
};

static void guess_below(struct guess *, const char *relative, int depth);

static void guess_entry(struct guess *g, const char *relative, const struct dirent *e, int depth) {
	char *path = *relative ? path_join(relative, e->d_name, strlen(e->d_name)) : strdup(e->d_name);
	char *full = path ? path_join(g->dir->native, path, strlen(path)) : NULL;
	struct stat st;
	if (full && stat(full, &st) == 0) {
		int fits = st.st_size <= INCLUDE_GUESS_BYTES && g->f->tree.bytes + (size_t)st.st_size < g->bytes && g->f->tree.count < g->files;
		if (S_ISDIR(st.st_mode) && depth > 0)
			guess_below(g, path, depth - 1);
		else if (S_ISREG(st.st_mode) && looks_like_header(path) && fits)
			g->dir->used |= tree_add(&g->f->tree, g->dir->native, g->dir->wire, path, strlen(path));
	}
	free(full), free(path);
}

static void guess_below(struct guess *g, const char *relative, int depth) {
	char *full = path_join(g->dir->native, relative, strlen(relative));
	DIR *d = full ? opendir(full) : NULL;
	for (struct dirent *e; d && (e = readdir(d)) && g->f->tree.count < g->files;)
		if (e->d_name[0] != '.')
			guess_entry(g, relative, e, depth);
	if (d)
		closedir(d);
	free(full);
}

/* Of the working directory, which may be a home directory, only the files directly in it are
 * considered. */
static void guess(struct finder *f) {
	struct guess g = {.f = f, .files = f->tree.count + INCLUDE_GUESSES, .bytes = f->tree.bytes + INCLUDE_GUESS_BYTES};
	g.files = g.files > INCLUDE_FILES / 2 ? INCLUDE_FILES / 2 : g.files;
	g.bytes = g.bytes > INCLUDE_BYTES / 2 ? INCLUDE_BYTES / 2 : g.bytes;
	for (size_t i = f->dir_count; i-- > 0;) {
		g.dir = &f->dirs[i];
		if (!g.dir->macro)
			guess_below(&g, "", i ? 4 : 0);
	}
}

static void find_all(struct finder *f, const struct include_source *sources, size_t count) {
	for (size_t i = 0; i < count; i++)
		read_source(f, -1, sources[i].text, sources[i].size);
	size_t done = 0;
	for (int guessed = 0;;) {
		done = read_found(f, done);
		resolve_macro_includes(f);
		if (done < f->tree.count && !f->tree.refusal && !f->memory_out)
			continue;
		int unresolved = 0;
		for (size_t i = 0; i < f->macro_include_count; i++)
			unresolved |= !f->macro_includes[i].resolved;
		if (!unresolved || guessed++ || f->tree.refusal || f->memory_out)
			return;
		guess(f);
	}
}

static void add_dir(struct finder *f, const char *directory, const struct option_dir *o) {
	struct search_dir *grown = realloc(f->dirs, (f->dir_count + 1) * sizeof *grown);
	if (!grown) {
		f->memory_out = 1;
		return;
	}
	f->dirs = grown;
	struct search_dir d = {.given = strdup(o ? o->path : ".")};
	d.native = !o ? strdup(directory) : *o->path == '/' ? strdup(o->path) : path_join(directory, o->path, strlen(o->path));
	d.wire = d.native ? path_wire(d.native) : NULL;
	if (o)
		d.start = o->start, d.end = o->end, d.used = 1;
	if (!d.given || !d.native || !d.wire)
		f->memory_out = 1;
	for (size_t n = d.given ? strlen(d.given) : 0; n && d.given[n - 1] == '/';)
		d.given[--n] = 0;
	f->dirs[f->dir_count++] = d;
}

/* Adds the value of a macro to the search directories, if it is a directory. */
static void add_macro_dir(struct finder *f, const char *value, size_t size, size_t at) {
	char *path = strndup(value, size);
	struct stat st;
	if (path && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		struct option_dir o = {at, at + size, path};
		add_dir(f, "", &o);
		f->dirs[f->dir_count - 1].macro = 1;
		f->dirs[f->dir_count - 1].used = 0;
	}
	f->memory_out |= !path;
	free(path);
}

static void add_option_defines(struct finder *f, const struct options *o) {
	for (size_t i = 0; i < o->define_count; i++) {
		const char *text = o->defines[i].text, *d = text + strspn(text, "\"'"), *equals = strchr(d, '=');
		if (!equals)
			continue;
		add_define(f, d, (size_t)(equals - d), equals + 1, strlen(equals + 1));
		const char *value = equals + 1 + strspn(equals + 1, "\"'\\");
		size_t at = o->defines[i].start + (size_t)(value - text), size = strcspn(value, "\"'\\");
		if (*value == '/')
			add_macro_dir(f, value, size, at);
	}
}

static int by_start(const void *a, const void *b) {
	size_t x = ((const struct search_dir *)a)->start, y = ((const struct search_dir *)b)->start;
	return x < y ? -1 : x > y;
}

void finder_free(struct finder *f) {
	for (size_t i = 0; i < f->dir_count; i++)
		free(f->dirs[i].native), free(f->dirs[i].wire), free(f->dirs[i].given);
	for (size_t i = 0; i < f->define_count; i++)
		free(f->defines[i].name), free(f->defines[i].body);
	for (size_t i = 0; i < f->macro_include_count; i++)
		free(f->macro_includes[i].name), free(f->macro_includes[i].argument);
	free(f->dirs), free(f->defines), free(f->macro_includes);
	tree_free(&f->tree);
}

int finder_run(struct finder *f, const char *options, const struct include_source *sources, size_t count, const char *directory) {
	struct options o;
	int status = options_parse(&o, options ? options : "");
	*f = (struct finder){0};
	if (status == 0)
		status = tree_new(&f->tree);
	if (status == 0) {
		add_dir(f, directory, NULL);
		for (size_t i = 0; i < o.dir_count; i++)
			add_dir(f, directory, &o.dirs[i]);
		add_option_defines(f, &o);
		if (f->dir_count > 1)
			qsort(f->dirs + 1, f->dir_count - 1, sizeof *f->dirs, by_start);
		if (!f->memory_out)
			find_all(f, sources, count);
	}
	options_free(&o);
	return status;
}
