/* signature.c: parses a kernel's parameters in its source. Layer: source. */
#include "signature.h"

#include <stdlib.h>
#include <string.h>

static int is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }
static int is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'; }

static int same(const char *word, size_t n, const char *what) { return strlen(what) == n && memcmp(word, what, n) == 0; }

static size_t scalar_size(const char *name, size_t n) {
	static const struct {
		const char *name;
		size_t size;
	} types[] = {{"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"half", 2}, {"int", 4}, {"uint", 4}, {"float", 4}, {"long", 8}, {"ulong", 8}, {"double", 8}};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (same(name, n, types[i].name))
			return types[i].size;
	return 0;
}

size_t type_size(const char *name, size_t n, size_t *tight) {
	size_t letters = 0, width = 0;
	*tight = 0;
	while (letters < n && (name[letters] < '0' || name[letters] > '9'))
		letters++;
	size_t scalar = scalar_size(name, letters);
	if (letters == n || n - letters > 2)
		return letters == n ? scalar : 0;
	for (size_t i = letters; i < n; i++)
		width = width * 10 + (size_t)(name[i] - '0');
	if (width == 3)
		*tight = 3 * scalar;
	return width == 2 || width == 4 || width == 8 || width == 16 ? width * scalar : width == 3 ? 4 * scalar : 0;
}

struct words {
	int global, local, constant, is_const, star, image, sampler, queue, pipe, writes, other;
	size_t size, tight; /* of the one type word that is known */
};

/* True when a macro redefines the word. */
static int redefined(const char *source, const char *word, size_t n) {
	for (const char *at = source; (at = strstr(at, "define")); at++) {
		const char *name = at + 6 + strspn(at + 6, " \t");
		if (strncmp(name, word, n) == 0 && !is_word(name[n]))
			return 1;
	}
	return 0;
}

static void note_word(struct words *w, const char *source, const char *word, size_t n) {
	if (n > 2 && word[0] == '_' && word[1] == '_') /* __global and the like */
		word += 2, n -= 2;
	size_t tight, size = type_size(word, n, &tight);
	if (same(word, n, "global"))
		w->global = 1;
	else if (same(word, n, "local"))
		w->local = 1;
	else if (same(word, n, "constant"))
		w->constant = 1;
	else if (same(word, n, "const"))
		w->is_const |= !w->star; /* behind the star it is the pointer that is constant */
	else if (same(word, n, "write_only") || same(word, n, "read_write"))
		w->writes = 1;
	else if (same(word, n, "sampler_t"))
		w->sampler = 1;
	else if (same(word, n, "queue_t"))
		w->queue = 1;
	else if (same(word, n, "pipe"))
		w->pipe = 1;
	else if (n > 7 && memcmp(word, "image", 5) == 0 && memcmp(word + n - 2, "_t", 2) == 0)
		w->image = 1;
	else if (size && !w->size && !redefined(source, word, n))
		w->size = size, w->tight = tight;
	else if (!same(word, n, "restrict") && !same(word, n, "volatile") && !same(word, n, "read_only") && !same(word, n, "private"))
		w->other++; /* the argument's name is one */
}

static struct arg_shape conclude(const struct words *w) {
	if (w->local)
		return (struct arg_shape){.kind = ARG_LOCAL};
	if (w->global || w->constant)
		return (struct arg_shape){.kind = ARG_POINTER, .reads = w->constant || w->is_const};
	if (w->star)
		return (struct arg_shape){0};
	if (w->image)
		return (struct arg_shape){.kind = ARG_IMAGE, .reads = !w->writes};
	if (w->pipe || w->sampler || w->queue)
		return (struct arg_shape){.kind = w->pipe ? ARG_PIPE : w->sampler ? ARG_SAMPLER : ARG_QUEUE};
	if (w->size && w->other <= 1)
		return (struct arg_shape){.kind = ARG_VALUE, .size = w->size, .tight = w->tight};
	return (struct arg_shape){0};
}

static struct arg_shape read_arg(const char *source, const char *at, const char *end) {
	struct words w = {0};
	while (at < end) {
		size_t n = 0;
		while (at + n < end && is_word(at[n]))
			n++;
		if (n)
			note_word(&w, source, at, n);
		else if (*at == '*' || *at == '[')
			w.star = 1;
		else if (!is_blank(*at))
			w.other = 2; /* attributes and whatever else */
		at += n ? n : 1;
	}
	return conclude(&w);
}

/* The parenthesis that closes the one at `at`; NULL when there is none, or a directive is in between. */
static const char *closing(const char *at) {
	int depth = 0;
	for (; *at && *at != '#' && *at != '{'; at++) {
		depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
		if (depth == 0)
			return at;
	}
	return NULL;
}

static const char *arg_end(const char *at, const char *end) {
	int depth = 0;
	for (; at < end && (depth || *at != ','); at++)
		depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
	return at;
}

static unsigned count_args(const char *at, const char *end) {
	while (at < end && is_blank(*at))
		at++;
	if (at == end || (end - at >= 4 && memcmp(at, "void", 4) == 0 && !is_word(at[4])))
		return 0;
	unsigned n = 1;
	while ((at = arg_end(at, end)) < end)
		n++, at++;
	return n;
}

static void merge(struct arg_shape *known, struct arg_shape now, int first) {
	if (first)
		*known = now;
	else if (known->kind != now.kind || known->size != now.size)
		*known = (struct arg_shape){0};
	else
		known->reads &= now.reads;
}

/* A copy of the source in which comments are blanks. */
static char *without_comments(const char *source) {
	char *copy = malloc(strlen(source) + 1), *out = copy;
	for (; copy && *source; source++) {
		const char *end = NULL;
		if (source[0] == '/' && source[1] == '*')
			end = strstr(source + 2, "*/"), end = end ? end + 1 : NULL;
		else if (source[0] == '/' && source[1] == '/')
			end = source + strcspn(source, "\n") - 1;
		*out++ = end ? ' ' : *source;
		source = end ? end : source;
	}
	if (out)
		*out = 0;
	return copy;
}

/* True when "void" precedes the name, unlike in a call by another kernel. */
static int is_declared(const char *text, const char *name) {
	while (name > text && is_blank(name[-1]))
		name--;
	return name - text >= 4 && memcmp(name - 4, "void", 4) == 0 && (name - text == 4 || !is_word(name[-5]));
}

static void read_list(const char *text, const char *open, const char *close, unsigned count, struct arg_shape *args, int first) {
	const char *at = open + 1;
	for (unsigned i = 0; i < count; i++) {
		const char *end = arg_end(at, close);
		merge(&args[i], read_arg(text, at, end), first);
		at = end + 1;
	}
}

void signature_read(const char *source, const char *name, unsigned count, struct arg_shape *args) {
	char *text = without_comments(source);
	size_t n = strlen(name);
	int first = 1;
	for (const char *at = text; text && (at = strstr(at, name)); at += n) {
		const char *open = at + n + strspn(at + n, " \t\r\n\v\f");
		int whole = (at == text || !is_word(at[-1])) && *open == '(' && is_declared(text, at);
		const char *close = whole ? closing(open) : NULL;
		if (!close || count_args(open + 1, close) != count)
			continue;
		read_list(text, open, close, count, args, first);
		first = 0;
	}
	free(text);
}
