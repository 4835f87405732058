// Runs a part of a case in a process of its own, which may end in any way.
#ifndef CHILD_H
#define CHILD_H

#include "clt.h"

#include <sys/types.h>

// child_run forks, calls the function in the child with its argument, and returns how the child
// ended: its exit status, 128 plus the signal that ended it, or child_hung. When the function
// returns in the child, the child calls exit() with the returned value. The caller must not have
// used OpenCL before unless that is the case's subject.
enum { child_hung = 1000, child_patience_s = 120 };

int child_run(int (*run)(void *), void *argument);

// child_start and child_wait are the two halves of child_run.
pid_t child_start(int (*run)(void *), void *argument);
int child_wait(pid_t child);

// child_must runs the function and fails the case when the child ends with another status than
// this.
void child_must(int status, int (*run)(void *), void *argument);

// child_threads counts the threads of this process.
int child_threads(void);

#endif
