/* scan.c: scans a source text for headers that it may include. Layer: source.
 *
 * Directives count whether or not an #if around them holds: a superfluous header does no harm, a
 * missing one does.
 */
#define _GNU_SOURCE
#include "include.h"

#include <stdlib.h>
#include <string.h>

struct scan {
	const char *at, *end;
	void (*found)(void *, const struct scan_item *);
	void *user;
};

static int is_name(char c) {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static int starts(const struct scan *s, const char *what) {
	size_t n = strlen(what);
	return (size_t)(s->end - s->at) >= n && memcmp(s->at, what, n) == 0;
}

/* Returns a copy without line ends that follow a backslash. */
static char *spliced(const char *text, size_t size, size_t *left) {
	char *copy = malloc(size + 1), *out = copy;
	for (size_t i = 0; copy && i < size; i++) {
		size_t lf = i + 1 < size && text[i + 1] == '\r' ? i + 2 : i + 1;
		if (text[i] == '\\' && lf < size && text[lf] == '\n')
			i = lf;
		else
			*out++ = text[i];
	}
	*left = copy ? (size_t)(out - copy) : 0;
	return copy;
}

static void skip_line(struct scan *s) {
	while (s->at < s->end && *s->at != '\n')
		s->at++;
}

static void skip_block_comment(struct scan *s) {
	for (s->at += 2; s->at < s->end && !starts(s, "*/"); s->at++)
		;
	s->at = s->end - s->at < 2 ? s->end : s->at + 2;
}

/* Skips white space and comments within a line. */
static void skip_blank(struct scan *s) {
	while (s->at < s->end) {
		if (starts(s, "/*"))
			skip_block_comment(s);
		else if (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\v' || *s->at == '\f')
			s->at++;
		else
			return;
	}
}

static void skip_literal(struct scan *s) {
	char quote = *s->at++;
	while (s->at < s->end && *s->at != quote && *s->at != '\n')
		s->at += *s->at == '\\' && s->end - s->at > 1 && s->at[1] != '\n' ? 2 : 1;
	if (s->at < s->end && *s->at == quote)
		s->at++;
}

/* Skips a comment, a literal or a character. */
static void skip_element(struct scan *s) {
	if (starts(s, "//"))
		skip_line(s);
	else if (starts(s, "/*"))
		skip_block_comment(s);
	else if (*s->at == '"' || *s->at == '\'')
		skip_literal(s);
	else
		s->at++;
}

static size_t scan_name(struct scan *s) {
	const char *start = s->at;
	while (s->at < s->end && is_name(*s->at))
		s->at++;
	return (size_t)(s->at - start);
}

/* Scans a header's name in quotes or angle brackets; returns 0 when there is none. */
static int scan_header(struct scan *s, int next) {
	if (s->at >= s->end || (*s->at != '"' && *s->at != '<'))
		return 0;
	struct scan_item item = {.kind = *s->at == '"' ? SCAN_QUOTED : SCAN_ANGLED, .name = s->at + 1, .next = next};
	char close = *s->at == '"' ? '"' : '>';
	for (s->at++; s->at < s->end && *s->at != close && *s->at != '\n'; s->at++)
		item.name_size++;
	if (s->at >= s->end || *s->at != close)
		return 1;
	s->at++;
	if (item.name_size)
		s->found(s->user, &item);
	return 1;
}

static void scan_include(struct scan *s, int next) {
	skip_blank(s);
	if (s->at >= s->end || *s->at == '\n' || scan_header(s, next))
		return;
	struct scan_item item = {.kind = SCAN_MACRO, .name = s->at};
	item.name_size = scan_name(s);
	skip_blank(s);
	if (s->at < s->end && *s->at == '(') {
		item.body = ++s->at;
		skip_line(s);
		while (s->at > item.body && *s->at != ')')
			s->at--;
		item.body_size = (size_t)(s->at - item.body);
	}
	s->found(s->user, &item);
}

static void scan_define(struct scan *s) {
	skip_blank(s);
	struct scan_item item = {.kind = SCAN_DEFINE, .name = s->at};
	item.name_size = scan_name(s);
	if (!item.name_size || (s->at < s->end && *s->at == '('))
		return;
	skip_blank(s);
	item.body = s->at;
	while (s->at < s->end && *s->at != '\n') /* a comment may end on a later line */
		skip_element(s);
	item.body_size = (size_t)(s->at - item.body);
	s->found(s->user, &item);
}

/* Scans a condition for __has_include. */
static void scan_condition(struct scan *s) {
	static const char word[] = "__has_include";
	while (s->at < s->end && *s->at != '\n') {
		if (!starts(s, word)) {
			skip_element(s);
			continue;
		}
		s->at += sizeof word - 1;
		int next = starts(s, "_next");
		scan_name(s);
		skip_blank(s);
		if (s->at < s->end && *s->at == '(')
			s->at++;
		skip_blank(s);
		scan_header(s, next);
	}
}

static void scan_directive(struct scan *s) {
	skip_blank(s);
	const char *word = s->at;
	size_t n = scan_name(s);
#define IS(text) (n == sizeof text - 1 && memcmp(word, text, n) == 0)
	if (IS("include") || IS("import"))
		scan_include(s, 0);
	else if (IS("include_next"))
		scan_include(s, 1);
	else if (IS("define"))
		scan_define(s);
	else if (IS("if") || IS("elif"))
		scan_condition(s);
#undef IS
}

static void scan_text(struct scan *s) {
	for (int fresh = 1; s->at < s->end;) { /* fresh: only blanks since the line began */
		char c = *s->at;
		if (c == '\n')
			fresh = 1, s->at++;
		else if (starts(s, "//") || starts(s, "/*"))
			skip_element(s);
		else if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f')
			s->at++;
		else if (fresh && (c == '#' || starts(s, "%:")))
			s->at += c == '#' ? 1 : 2, fresh = 0, scan_directive(s);
		else
			fresh = 0, skip_element(s);
	}
}

int scan_source(const char *text, size_t size, void (*found)(void *, const struct scan_item *), void *user) {
	size_t left;
	char *copy = spliced(text, size, &left);
	if (!copy)
		return -1;
	struct scan s = {copy, copy + left, found, user};
	scan_text(&s);
	free(copy);
	return 0;
}

static int is_blank(char c) { return c == ' ' || c == '\t'; }

/* Returns the quote after an #include whose word begins at `at`; NULL when that is no directive. */
static char *include_quote(char *text, char *at, char *end) {
	char *before = at;
	while (before > text && is_blank(before[-1]))
		before--;
	if (before == text || before[-1] != '#')
		return NULL;
	while (at < end && is_name(*at))
		at++;
	while (at < end && is_blank(*at))
		at++;
	return at < end && (*at == '"' || *at == '<') ? at : NULL;
}

void scan_relocate(char *text, size_t size) {
	static const char word[] = "include";
	char *end = text + size;
	for (char *at = text; (at = memmem(at, (size_t)(end - at), word, sizeof word - 1)); at++)
		for (char *quote = include_quote(text, at, end); quote && end - quote > 1 && quote[1] == '/'; quote++) {
			quote[1] = quote[0];
			quote[0] = ' ';
		}
}
