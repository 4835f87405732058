/* calls.c: records calls of several threads, for the Go test: calls THREADS CALLS [killed|again].
 * It prints the page faults that the main thread's calls caused. With "again" it executes itself. */
#include "record.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static long calls;

static long page_faults(void) {
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return u.ru_minflt;
}

static void *make_calls(void *arg) {
	struct record_call call;
	for (long i = 0; i < calls; i++)
		if (record_begin(&call, 1)) {
			record_returned(&call);
			record_end(&call, 0, NULL);
		}
	return arg;
}

int main(int argc, char **argv) {
	if (argc < 3 || !record_open())
		return 1;
	int threads = atoi(argv[1]);
	calls = atol(argv[2]);
	pthread_t *thread = calloc((size_t)threads + 1, sizeof *thread);
	for (int i = 0; thread && i < threads; i++)
		if (pthread_create(&thread[i], NULL, make_calls, NULL) != 0)
			return 1;
	for (int i = 0; thread && i < threads; i++)
		pthread_join(thread[i], NULL);
	free(thread);
	long before = page_faults();
	make_calls(NULL);
	printf("%ld\n", page_faults() - before);
	fflush(stdout);
	if (argc > 3 && strcmp(argv[3], "killed") == 0)
		raise(SIGKILL);
	record_close();
	if (argc > 3 && strcmp(argv[3], "again") == 0)
		return execl("/proc/self/exe", argv[0], argv[1], argv[2], (char *)NULL);
	return 0;
}
