// Package timeslice sets how long the kernel's scheduler lets the threads of this process run while
// other threads wait for their processor.
package timeslice

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Short is the slice of processes that serve short requests of several tenants. A thread that wakes
// waits for the slices of the running threads: with the kernel's 3 ms a request of 0.1 ms took 30
// times as long beside a tenant that used all processors, whatever its share of them.
const Short = 200 * time.Microsecond

// Set sets the slice of all threads of this process. Threads and processes that they start later
// inherit it. 0 is the kernel's default. Linux supports it from 6.12 on (EEVDF's slices, the field
// runtime of sched_setattr(2)); earlier versions ignore it.
func Set(slice time.Duration) error {
	set := map[int]bool{}
	for { // until no thread was started by a thread not set yet
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("set the time slice: %w", err)
		}
		before := len(set)
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil || set[id] {
				continue
			}
			if err := setThread(id, slice); err != nil {
				return fmt.Errorf("set the time slice: %w", err)
			}
			set[id] = true
		}
		if len(set) == before {
			return nil
		}
	}
}

// Current returns the slice of the calling thread, 0 if the kernel does not report it.
func Current() time.Duration { return Of(0) }

// Of returns the slice of the thread with that id of any process (0: the calling thread), 0 if the
// kernel does not report it.
func Of(id int) time.Duration {
	attr, err := unix.SchedGetAttr(id, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return 0
	}
	return time.Duration(attr.Runtime)
}

// Run calls f on a thread that has the slice meanwhile. Processes that f starts inherit it. Like
// [Set], it has no effect where the kernel forbids it.
func Run(slice time.Duration, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	id, before := unix.Gettid(), Current()
	if setThread(id, slice) == nil {
		defer func() { _ = setThread(id, before) }()
	}
	f()
}

// setThread sets the slice of a thread with the normal scheduling policy. It ignores a thread that
// has ended, and a thread with another policy.
func setThread(id int, slice time.Duration) error {
	attr, err := unix.SchedGetAttr(id, 0)
	if err == nil && attr.Policy == unix.SCHED_NORMAL {
		attr.Runtime, attr.Flags = uint64(slice), 0
		err = unix.SchedSetAttr(id, attr, 0)
	}
	if err == unix.ESRCH {
		return nil
	}
	return err
}
