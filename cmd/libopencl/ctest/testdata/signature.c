/* Prints the kinds of a kernel's arguments as signature.c reads them from standard input: signature NAME COUNT. */
#include "signature.h"

#include <stdlib.h>
#include <string.h>

#include <stdio.h>

int main(int argc, char **argv) {
	static const char *const kinds[] = {"unknown", "value", "local", "pointer", "image", "pipe", "sampler", "queue"};
	static char text[1 << 20];
	size_t size = fread(text, 1, sizeof text - 1, stdin);
	unsigned count = argc == 3 ? (unsigned)atoi(argv[2]) : 0;
	if (!count)
		return 2;
	struct arg_shape *args = calloc(count, sizeof *args);
	char *source = malloc(size + 1); /* exactly as long as it is, for the sanitizer */
	memcpy(source, text, size);
	source[size] = 0;
	signature_read(source, argv[1], count, args);
	for (unsigned i = 0; i < count; i++)
		printf("%s%s %zu %zu\n", kinds[args[i].kind], args[i].reads ? " reads" : "", args[i].size, args[i].tight);
	free(source), free(args);
	return 0;
}
