/* options.c: finds -I and -D in compiler options. Layer: source.
 *
 * Words are separated by white space. Quotes of both kinds and backslashes have a shell's meaning;
 * a quote without a closing one is an ordinary character.
 */
#define _GNU_SOURCE
#include "include.h"

#include <stdlib.h>
#include <string.h>

static int is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'; }

/* Copies the quoted text at `at`, and returns the position after it. */
static const char *read_quoted(const char *at, const char *end, char **out) {
	char quote = *at++;
	for (; at < end; at++) {
		if (quote == '"' && *at == '\\' && at + 1 < end)
			at++;
		*(*out)++ = *at;
	}
	return end + 1;
}

/* Returns the closing quote, or NULL. */
static const char *closing(const char *at) {
	char quote = *at++;
	for (; *at && *at != quote; at++)
		if (quote == '"' && *at == '\\' && at[1])
			at++;
	return *at ? at : NULL;
}

/* Copies one word to out, which has space for all of the text; returns the position after it. */
static const char *read_word(const char *at, char *out) {
	while (*at && !is_space(*at)) {
		const char *close = *at == '"' || *at == '\'' ? closing(at) : NULL;
		if (close)
			at = read_quoted(at, close, &out);
		else if (*at == '\\' && at[1])
			*out++ = at[1], at += 2;
		else
			*out++ = *at++;
	}
	*out = 0;
	return at;
}

static const char *skip_space(const char *at) {
	while (is_space(*at))
		at++;
	return at;
}

static int add_dir(struct options *o, size_t start, size_t end, const char *path) {
	struct option_dir *grown = realloc(o->dirs, (o->dir_count + 1) * sizeof *grown);
	char *copy = strdup(path);
	if (grown)
		o->dirs = grown;
	if (!grown || !copy) {
		free(copy);
		return -1;
	}
	o->dirs[o->dir_count++] = (struct option_dir){start, end, copy};
	return 0;
}

static int add_define(struct options *o, const char *text, size_t start, size_t end) {
	struct option_define *grown = realloc(o->defines, (o->define_count + 1) * sizeof *grown);
	char *copy = strndup(text + start, end - start);
	if (grown)
		o->defines = grown;
	if (!grown || !copy) {
		free(copy);
		return -1;
	}
	o->defines[o->define_count++] = (struct option_define){start, end, copy};
	return 0;
}

/* Reads one option, and its argument when that is a separate word. */
static const char *read_option(struct options *o, const char *text, const char *at, char *word, int *status) {
	const char *start = at;
	at = read_word(at, word);
	int include = strncmp(word, "-I", 2) == 0, define = strncmp(word, "-D", 2) == 0;
	if (!include && !define)
		return at;
	const char *argument = word + 2, *raw = start + 2;
	if (!*argument) {
		raw = skip_space(at);
		if (!*raw)
			return raw;
		at = read_word(raw, word);
		argument = word;
	}
	if (include)
		*status |= add_dir(o, (size_t)(start - text), (size_t)(at - text), argument);
	else
		*status |= add_define(o, text, (size_t)(raw - text), (size_t)(at - text));
	return at;
}

int options_parse(struct options *o, const char *text) {
	*o = (struct options){0};
	char *word = malloc(strlen(text) + 1);
	int status = word ? 0 : -1;
	for (const char *at = skip_space(text); status == 0 && *at; at = skip_space(at))
		at = read_option(o, text, at, word, &status);
	free(word);
	return status;
}

void options_free(struct options *o) {
	for (size_t i = 0; i < o->dir_count; i++)
		free(o->dirs[i].path);
	for (size_t i = 0; i < o->define_count; i++)
		free(o->defines[i].text);
	free(o->dirs);
	free(o->defines);
	*o = (struct options){0};
}

int options_have(const char *text, const char *word, const char **value) {
	size_t n = strlen(word);
	int open_ended = n && word[n - 1] == '=';
	for (const char *at = text ? text : ""; (at = strstr(at, word)); at++) {
		int starts = at == text || is_space(at[-1]);
		if (!starts || !(open_ended || !at[n] || is_space(at[n])))
			continue;
		if (value)
			*value = at + n;
		return 1;
	}
	return 0;
}
