/* tree.c: reads headers and assigns their paths on the wire. Layer: source. */
#define _GNU_SOURCE
#include "tree.h"
#include "include.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLOTS = 4 * INCLUDE_FILES };

/* A file of this name creates its directory, which occurs only in a path like "dir/..". */
static const char placeholder_name[] = ".outboard-keep";

int tree_new(struct tree *t) {
	*t = (struct tree){.table = calloc(SLOTS, sizeof *t->table)};
	return t->table ? 0 : -1;
}

void tree_free(struct tree *t) {
	for (size_t i = 0; i < t->count; i++) {
		free(t->files[i].native);
		free(t->files[i].wire);
		free(t->files[i].data);
	}
	free(t->files);
	free(t->table);
	free(t->refusal);
	*t = (struct tree){0};
}

char *path_join(const char *dir, const char *name, size_t name_size) {
	size_t n = strlen(dir);
	char *out = malloc(n + name_size + 2);
	if (!out)
		return NULL;
	memcpy(out, dir, n);
	out[n] = '/';
	memcpy(out + n + 1, name, name_size);
	out[n + 1 + name_size] = 0;
	return out;
}

char *path_dir(const char *path) {
	const char *slash = strrchr(path, '/');
	return strndup(path, slash ? (size_t)(slash - path) : 0);
}

static int is_plain(char c) {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' || c == '+';
}

/* Appends one component; characters that a compiler's option parser could interpret become =XX. */
static char *put_component(char *out, const char *at, size_t n) {
	*out++ = '/';
	for (size_t i = 0; i < n; i++)
		out += is_plain(at[i]) ? (*out = at[i], 1) : sprintf(out, "=%02X", (unsigned char)at[i]);
	*out = 0;
	return out;
}

char *path_wire(const char *native) {
	char *out = malloc(3 * strlen(native) + 2), *end = out;
	if (!out)
		return NULL;
	*out = 0;
	while (*native) {
		size_t n = strcspn(native, "/");
		if (n == 2 && memcmp(native, "..", 2) == 0) {
			char *slash = strrchr(out, '/');
			end = slash ? slash : out;
			*end = 0;
		} else if (n && !(n == 1 && *native == '.')) {
			end = put_component(end, native, n);
		}
		native += n + (native[n] == '/');
	}
	return out;
}

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

char *path_unwire(const char *wire) {
	char *out = malloc(strlen(wire) + 1), *end = out;
	for (; out && *wire; wire++) {
		int high = *wire == '=' && wire[1] ? hex(wire[1]) : -1, low = high >= 0 && wire[2] ? hex(wire[2]) : -1;
		*end++ = low >= 0 ? (char)(high * 16 + low) : *wire;
		wire += low >= 0 ? 2 : 0;
	}
	if (end)
		*end = 0;
	return out;
}

static size_t slot_of(const struct tree *t, const char *wire) {
	size_t h = 14695981039346656037u;
	for (const char *c = wire; *c; c++)
		h = (h ^ (unsigned char)*c) * 1099511628211u;
	size_t i = (h ^ h >> 32) % SLOTS;
	while (t->table[i] && strcmp(t->files[t->table[i] - 1].wire, wire) != 0)
		i = (i + 1) % SLOTS;
	return i;
}

static void refuse(struct tree *t, const char *format, size_t bound) {
	if (!t->refusal && asprintf(&t->refusal, format, bound) < 0)
		t->refusal = NULL, t->memory_out = 1;
}

/* Takes ownership of native, wire and data. */
static int append_file(struct tree *t, struct sent_file file, size_t slot) {
	struct sent_file *grown = NULL;
	if (t->count == INCLUDE_FILES)
		refuse(t, "outboard: the headers of this program are more than %zu files\n", (size_t)INCLUDE_FILES);
	else if (file.size > INCLUDE_BYTES - t->bytes)
		refuse(t, "outboard: the headers of this program are more than %zu MiB\n", (size_t)INCLUDE_BYTES >> 20);
	else if (!(grown = realloc(t->files, (t->count + 1) * sizeof *grown)))
		t->memory_out = 1;
	if (!grown) {
		free(file.native), free(file.wire), free(file.data);
		return 0;
	}
	t->files = grown;
	t->files[t->count++] = file;
	t->bytes += file.size + strlen(file.wire) + 32; /* its size in the message */
	t->table[slot] = (unsigned short)t->count;
	return 1;
}

static int append_placeholder(struct tree *t, const char *wire_dir) {
	struct sent_file file = {.wire = path_join(wire_dir, placeholder_name, sizeof placeholder_name - 1), .placeholder = 1};
	if (!file.wire)
		return t->memory_out = 1, 0;
	size_t slot = slot_of(t, file.wire);
	if (t->table[slot]) {
		free(file.wire);
		return 1;
	}
	return append_file(t, file, slot);
}

/* Returns dir/name without "." and "..". With placeholder, every directory that ".." leaves is
 * created on the other side. */
static char *wire_join(struct tree *t, const char *dir, const char *name, size_t size, int placeholder) {
	char *out = malloc(strlen(dir) + size + 2);
	if (!out)
		return t->memory_out = 1, NULL;
	char *end = stpcpy(out, dir);
	for (size_t i = 0; i < size;) {
		size_t n = 0;
		while (i + n < size && name[i + n] != '/')
			n++;
		if (n == 2 && memcmp(name + i, "..", 2) == 0) {
			if (placeholder && *out)
				append_placeholder(t, out);
			char *slash = strrchr(out, '/');
			end = slash ? slash : out;
		} else if (n && !(n == 1 && name[i] == '.')) {
			*end++ = '/';
			end = mempcpy(end, name + i, n);
		}
		*end = 0;
		i += n + 1;
	}
	return out;
}

static unsigned char *read_all(struct tree *t, int fd, size_t size, size_t *got) {
	unsigned char *data = malloc(size + 1);
	if (!data)
		return t->memory_out = 1, NULL;
	for (*got = 0; *got < size;) {
		ssize_t n = read(fd, data + *got, size - *got);
		if (n <= 0)
			break;
		*got += (size_t)n;
	}
	return data;
}

/* Returns the contents of a regular file; NULL when there is none or it is too large. */
static unsigned char *read_file(struct tree *t, const char *path, size_t *size) {
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* must not block on a pipe */
	if (fd < 0)
		return NULL;
	struct stat st;
	unsigned char *data = NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		if ((size_t)st.st_size > INCLUDE_BYTES - t->bytes)
			refuse(t, "outboard: the headers of this program are more than %zu MiB\n", (size_t)INCLUDE_BYTES >> 20);
		else
			data = read_all(t, fd, (size_t)st.st_size, size);
	}
	close(fd);
	return data;
}

static int add_new_file(struct tree *t, struct sent_file file, size_t slot) {
	file.data = read_file(t, file.native, &file.size);
	if (!file.data) {
		free(file.native), free(file.wire);
		return 0;
	}
	return append_file(t, file, slot);
}

int tree_add(struct tree *t, const char *native_dir, const char *wire_dir, const char *name, size_t name_size) {
	if (t->refusal || t->memory_out || name_size > 4096)
		return 0;
	struct sent_file file = {.native = path_join(native_dir, name, name_size), .wire = wire_join(t, wire_dir, name, name_size, 0)};
	if (!file.native || !file.wire) {
		free(file.native), free(file.wire);
		return t->memory_out = 1, 0;
	}
	size_t slot = slot_of(t, file.wire);
	int there = t->table[slot] != 0;
	if (there)
		free(file.native), free(file.wire);
	else
		there = add_new_file(t, file, slot);
	if (there) /* adds its placeholders */
		free(wire_join(t, wire_dir, name, name_size, 1));
	return there && !t->refusal;
}
