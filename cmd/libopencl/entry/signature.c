/* signature.c: finds a kernel's parameter in a program's source. Layer: entry.
 *
 * Drivers know the qualifiers of arguments only of programs that were built with
 * -cl-kernel-arg-info. The source is read as tokens, without comments and lines of the preprocessor:
 * a kernel is its name outside of braces before a parenthesis. */
#include "signature.h"

#include <ctype.h>
#include <string.h>

struct token {
	const char *start;
	size_t size; /* 0 at the end */
};

static int is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Returns the first character after a line, whose end a backslash continues. */
static const char *skip_line(const char *p) {
	for (; *p && *p != '\n'; p++)
		if (p[0] == '\\' && p[1])
			p++;
	return p;
}

static const char *skip_blank(const char *p) {
	for (;;) {
		if (isspace((unsigned char)*p)) {
			p++;
		} else if (*p == '#' || (p[0] == '/' && p[1] == '/')) {
			p = skip_line(p);
		} else if (p[0] == '/' && p[1] == '*') {
			const char *end = strstr(p + 2, "*/");
			p = end ? end + 2 : p + strlen(p);
		} else {
			return p;
		}
	}
}

/* Returns the next token, a word or one other character, and moves *at behind it. */
static struct token next_token(const char **at) {
	struct token t = {skip_blank(*at), 0};
	while (is_word(t.start[t.size]))
		t.size++;
	if (t.size == 0 && *t.start)
		t.size = 1;
	*at = t.start + t.size;
	return t;
}

static int is(const struct token *t, const char *word) { return t->size == strlen(word) && memcmp(t->start, word, t->size) == 0; }

/* Returns the source after the parenthesis that begins the kernel's parameters, or NULL. */
static const char *find_parameters(const char *at, const char *kernel) {
	int depth = 0, named = 0;
	for (struct token t = next_token(&at); t.size; t = next_token(&at)) {
		if (named && is(&t, "("))
			return at;
		depth += is(&t, "{") - is(&t, "}");
		named = depth == 0 && is(&t, kernel);
	}
	return NULL;
}

int signature_reads(const char *source, const char *kernel, unsigned index) {
	const char *at = find_parameters(source, kernel);
	int depth = 1, pointer = 0;
	for (unsigned i = 0; at && depth > 0 && i <= index;) {
		struct token t = next_token(&at);
		if (t.size == 0)
			return 0;
		depth += is(&t, "(") - is(&t, ")");
		pointer |= is(&t, "*"); /* a const after it is the pointer's */
		if (depth == 1 && is(&t, ","))
			i++;
		else if (i == index && (is(&t, "constant") || is(&t, "__constant") || is(&t, "read_only") || is(&t, "__read_only") || (!pointer && is(&t, "const"))))
			return 1;
		if (is(&t, ","))
			pointer = 0;
	}
	return 0;
}

int signature_count(const char *source, const char *kernel) {
	const char *at = find_parameters(source, kernel);
	int depth = 1, commas = 0;
	struct token last = {0}; /* before the parenthesis that ends the parameters */
	for (struct token t; at; last = t) {
		t = next_token(&at);
		if (t.size == 0)
			return -1;
		depth += is(&t, "(") - is(&t, ")");
		if (depth == 0)
			return last.size == 0 || is(&last, "void") ? 0 : commas + 1;
		commas += depth == 1 && is(&t, ",");
	}
	return -1;
}
