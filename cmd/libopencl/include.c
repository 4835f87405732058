/* include.c: finds the headers of the program's own machine.
 *
 * Searches as compilers do: "x" beside the including file, then, as <x>, in the working directory (PoCL searches it before
 * the program's directories, and so do we) and in the directories of -I in their order. What is found
 * is read in turn. A header named by a macro is looked up through the macro's definitions, of which options may hold a part of the path
 * (-D INCLUDE_PATH=/usr/share/x with #include TEXT(INCLUDE_PATH/y.h)); when that fails, everything that looks like a header below the
 * directories goes along.
 */
#define _GNU_SOURCE
#include "include.h"
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct search_dir {
	char *native, *wire, *given;
	size_t start, end; /* of its option, or of the macro's value */
	int macro;         /* an absolute path that -D gives to a macro: only macros lead there */
	int used;
};

struct define {
	char *name, *body;
};

struct wish { /* #include MACRO */
	char *name, *argument; /* argument: NULL unless it is #include MACRO(argument) */
	long base;
	int next, met;
};

struct finder {
	struct tree tree;
	struct search_dir *dirs; /* the first is the working directory */
	size_t dir_count;
	struct define *defines;
	size_t define_count;
	struct wish *wishes;
	size_t wish_count;
	long base;    /* index of the file being read, or -1 */
	int absolute; /* a header was taken by its absolute name */
	int memory_out;
};

/* ---- looking up */

static int take_from_dirs(struct finder *f, const char *name, size_t size, int all) {
	int found = 0;
	for (size_t i = 0; i < f->dir_count && (all || !found); i++)
		if (!f->dirs[i].macro && tree_take(&f->tree, f->dirs[i].native, f->dirs[i].wire, name, size))
			found = f->dirs[i].used = 1;
	return found;
}

static int take_beside(struct finder *f, long base, const char *name, size_t size) {
	char *native = path_dir(f->tree.files[base].native), *wire = path_dir(f->tree.files[base].wire);
	int found = native && wire && tree_take(&f->tree, native, wire, name, size);
	f->memory_out |= !native || !wire;
	free(native), free(wire);
	return found;
}

static int take_header(struct finder *f, long base, int quoted, int next, const char *name, size_t size) {
	if (*name == '/') { /* the directive is made relative to the root: scan_relocate */
		int found = tree_take(&f->tree, "", "", name, size);
		f->absolute |= found;
		return found;
	}
	if (quoted && base >= 0 && take_beside(f, base, name, size) && !next)
		return 1;
	return take_from_dirs(f, name, size, next);
}

/* A path that macros made, absolute by a macro of the options, which can be given another value. */
static int take_by_macro(struct finder *f, const char *path) {
	for (size_t i = 0; i < f->dir_count; i++) {
		struct search_dir *d = &f->dirs[i];
		size_t n = strlen(d->native);
		if (d->macro && strncmp(path, d->native, n) == 0 && tree_take(&f->tree, d->native, d->wire, path + n, strlen(path + n)))
			return d->used = 1;
	}
	return 0;
}

/* ---- what sources say */

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

static void add_wish(struct finder *f, const struct scan_item *item) {
	struct wish *grown = realloc(f->wishes, (f->wish_count + 1) * sizeof *grown);
	if (grown)
		f->wishes = grown;
	char *name = strndup(item->name, item->name_size), *argument = item->body ? strndup(item->body, item->body_size) : NULL;
	if (!grown || !name || (item->body && !argument)) {
		free(name), free(argument);
		f->memory_out = 1;
		return;
	}
	f->wishes[f->wish_count++] = (struct wish){name, argument, f->base, item->next, 0};
}

static int names_header(const char *body, size_t size) {
	while (size && (*body == '\\' || *body == '\'' || *body == ' ' || *body == '\t'))
		body++, size--;
	return size && (*body == '"' || *body == '<' || *body == '_' || *body == '/' || *body == '.' || (*body >= 'A' && *body <= 'Z') || (*body >= 'a' && *body <= 'z'));
}

static void found_item(void *user, const struct scan_item *item) {
	struct finder *f = user;
	if (item->kind == SCAN_MACRO)
		add_wish(f, item);
	else if (item->kind != SCAN_DEFINE)
		take_header(f, f->base, item->kind == SCAN_QUOTED, item->next, item->name, item->name_size);
	else if (names_header(item->body, item->body_size)) /* most are numbers */
		add_define(f, item->name, item->name_size, item->body, item->body_size);
}

static void read_source(struct finder *f, long base, const char *text, size_t size) {
	f->base = base;
	if (scan_source(text, size, found_item, f) != 0)
		f->memory_out = 1;
}

/* Reads every file that was found since `from`. */
static size_t read_found(struct finder *f, size_t from) {
	for (; from < f->tree.count && !f->tree.refusal && !f->memory_out; from++)
		if (!f->tree.files[from].keep)
			read_source(f, (long)from, (const char *)f->tree.files[from].data, f->tree.files[from].size);
	return from;
}

/* ---- macros */

static const char word_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

static int meet_name(struct finder *f, const struct wish *w, const char *name, int depth);

/* "x", <x>, or another macro; in options with backslashes before the quotes. */
static int meet_body(struct finder *f, const struct wish *w, const char *body, int depth) {
	body += strspn(body, " \t\\'");
	if (*body != '"' && *body != '<') {
		char *name = strndup(body, strspn(body, word_characters));
		int met = name && *name && meet_name(f, w, name, depth + 1);
		free(name);
		return met;
	}
	size_t n = strcspn(body + 1, *body == '"' ? "\"" : ">");
	if (n && body[n] == '\\')
		n--;
	return n && take_header(f, w->base, *body == '"', w->next, body + 1, n);
}

static int meet_name(struct finder *f, const struct wish *w, const char *name, int depth) {
	int met = 0;
	for (size_t i = 0; i < f->define_count && depth < 16; i++)
		if (strcmp(f->defines[i].name, name) == 0)
			met |= meet_body(f, w, f->defines[i].body, depth);
	return met;
}

/* The value of a macro, without quotes; *size is its length. NULL when it has none. */
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

/* The text with macros replaced by their values, once; NULL when it is too long for a path. */
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

/* #include TEXT(DIRECTORY/x.h): whatever the macros around do, they make a string of it. */
static int meet_argument(struct finder *f, const struct wish *w) {
	const char *inner = strrchr(w->argument, '(');
	char *text = strdup(inner ? inner + 1 : w->argument);
	if (text)
		text[strcspn(text, ")")] = 0;
	for (int depth = 0; text && depth < 4; depth++) {
		char *path = expand(f, text);
		int met = path && *path && (*path == '/' ? take_by_macro(f, path) : take_header(f, w->base, 1, w->next, path, strlen(path)));
		free(text);
		text = path;
		if (met) {
			free(text);
			return 1;
		}
	}
	free(text);
	return 0;
}

/* A definition may come to light only in a file that another macro names, so all wishes are tried each time. */
static void meet_wishes(struct finder *f) {
	for (size_t i = 0; i < f->wish_count; i++)
		f->wishes[i].met |= f->wishes[i].argument ? meet_argument(f, &f->wishes[i]) : meet_name(f, &f->wishes[i], f->wishes[i].name, 0);
}

/* ---- guessing */

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
	size_t files, bytes; /* the tree's, at which guessing ends */
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
			g->dir->used |= tree_take(&g->f->tree, g->dir->native, g->dir->wire, path, strlen(path));
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

/* The working directory may be anything, a home for instance: only what lies in it directly. */
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
		meet_wishes(f);
		if (done < f->tree.count && !f->tree.refusal && !f->memory_out)
			continue;
		int unmet = 0;
		for (size_t i = 0; i < f->wish_count; i++)
			unmet |= !f->wishes[i].met;
		if (!unmet || guessed++ || f->tree.refusal || f->memory_out)
			return;
		guess(f);
	}
}

/* ---- the directories */

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

/* The value of a macro, if it is a directory. */
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

static int by_place(const void *a, const void *b) {
	size_t x = ((const struct search_dir *)a)->start, y = ((const struct search_dir *)b)->start;
	return x < y ? -1 : x > y;
}

static void finder_free(struct finder *f) {
	for (size_t i = 0; i < f->dir_count; i++)
		free(f->dirs[i].native), free(f->dirs[i].wire), free(f->dirs[i].given);
	for (size_t i = 0; i < f->define_count; i++)
		free(f->defines[i].name), free(f->defines[i].body);
	for (size_t i = 0; i < f->wish_count; i++)
		free(f->wishes[i].name), free(f->wishes[i].argument);
	free(f->dirs), free(f->defines), free(f->wishes);
	tree_free(&f->tree);
}

/* ---- the result */

static const char prefix[] = "/outboard-include/0";

/* How much of all wire paths is the same: the part that need not travel. */
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

/* The files' wire form into `to`, or only its size. */
static size_t put_files(unsigned char *to, const struct tree *t, size_t root) {
	uint64_t count = t->count;
	size_t at = 8;
	if (to)
		memcpy(to, &count, 8);
	for (size_t i = 0; i < t->count; i++) {
		const struct laid *file = &t->files[i];
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
	if (f->absolute) /* last: only for them */
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
	if (!first) { /* nothing found, and no directories to replace */
		out->options = options ? strdup(options) : NULL;
		return options && !out->options ? -1 : 0;
	}
	return make_files(out, f, root) | make_names(out, f, first, root) | make_options(out, options, f, root);
}

static int find_in(struct includes *out, const char *options, const struct include_source *sources, size_t count, const char *directory) {
	struct finder f = {0};
	struct options o;
	int status = options_parse(&o, options ? options : "");
	if (status == 0)
		status = tree_new(&f.tree);
	if (status == 0) {
		add_dir(&f, directory, NULL);
		for (size_t i = 0; i < o.dir_count; i++)
			add_dir(&f, directory, &o.dirs[i]);
		add_option_defines(&f, &o);
		if (f.dir_count > 1)
			qsort(f.dirs + 1, f.dir_count - 1, sizeof *f.dirs, by_place);
		if (!f.memory_out)
			find_all(&f, sources, count);
		status = make_result(out, options, &f);
	}
	finder_free(&f);
	options_free(&o);
	return status;
}

int includes_find(struct includes *out, const char *options, const struct include_source *sources, size_t count, const char *directory) {
	int saved = errno;
	*out = (struct includes){0};
	char *own = directory ? NULL : getcwd(NULL, 0); /* gone: then only absolute directories are found */
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

/* The name whose wire form stands at `at`, or NULL. */
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
