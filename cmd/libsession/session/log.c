/* log.c: messages on the program's standard error. Layer: session. */
#include "state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* session_log writes one line with a single system call, so that lines of several threads do not
 * mix. */
void session_log(const char *format, ...) {
	char line[1024] = "outboard: ";
	size_t head = strlen(line);
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line + head, sizeof line - head - 1, format, args);
	va_end(args);
	size_t size = head + (n < 0 ? 0 : (size_t)n);
	if (size > sizeof line - 2)
		size = sizeof line - 2;
	line[size] = '\n';
	int saved = errno;
	(void)!syscall(SYS_write, 2, line, size + 1);
	errno = saved;
}
