package lend

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// workerClocks are the arbiter's clocks of the workers of a device. The lock of deviceTurns guards
// them.
type workerClocks map[outboard.SessionID]*turnWorker

// Used returns the processor time of the worker; 0 after it has ended.
func (c workerClocks) Used(id outboard.SessionID) time.Duration { return processorTime(c.pid(id)) }

// Waited returns the longest wait for a processor of a thread of the worker.
func (c workerClocks) Waited(id outboard.SessionID) time.Duration { return longestWait(c.pid(id)) }

// pid returns the process number of a worker that executes kernels, 0 for none.
func (c workerClocks) pid(id outboard.SessionID) int {
	w := c[id]
	if w == nil || w.process == nil {
		return 0
	}
	if w.executes == 0 {
		w.executes = childOfInit(w.process.pid())
	}
	return w.executes
}

// childOfInit returns the first child of a process that is the init of a PID namespace, as the
// first process of a worker's sandbox is; else, or before there is a child, the process itself.
func childOfInit(pid int) int {
	proc := procOf(pid)
	status, _ := os.ReadFile(filepath.Join(proc, "status")) // of a process that has ended: ""
	_, numbers, _ := strings.Cut(string(status), "\nNSpid:")
	numbers, _, _ = strings.Cut(numbers, "\n") // one for each PID namespace from this process's on
	if len(strings.Fields(numbers)) < 2 {
		return pid
	}
	lists, _ := filepath.Glob(filepath.Join(proc, "task", "*", "children")) // the pattern is valid
	for _, list := range lists {
		text, _ := os.ReadFile(list) // of a thread that has ended: ""
		if children := strings.Fields(string(text)); len(children) > 0 {
			child, _ := strconv.Atoi(children[0]) // the kernel writes valid numbers
			return child
		}
	}
	return pid
}

// procOf returns the path of a process's file or folder in proc(5).
func procOf(pid int, name ...string) string {
	return filepath.Join(append([]string{string(filepath.Separator), "proc", strconv.Itoa(pid)}, name...)...)
}

// processorTime returns the processor time of a process; 0 if it has ended.
func processorTime(pid int) time.Duration {
	// The number of a process's clock, as clock_getcpuclockid(3) computes it: the scheduler's clock
	// of a whole process.
	const scheduler = 2
	var now unix.Timespec
	if pid == 0 || unix.ClockGettime(^int32(pid)<<3|scheduler, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// longestWait returns for how long that thread of a process which waited longest has waited in the
// queues of processors: the second number of /proc/PID/task/TID/schedstat (sched-stats.rst of the
// kernel's documentation). It is 0 on a kernel that does not count.
func longestWait(pid int) time.Duration {
	tasks := procOf(pid, "task")
	dir, err := os.Open(tasks)
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(0) // those of a process that ends: fewer
	var longest int64
	for _, name := range names {
		text, _ := os.ReadFile(filepath.Join(tasks, name, "schedstat")) // of a thread that has ended: ""
		if fields := bytes.Fields(text); len(fields) > 1 {
			wait, _ := strconv.ParseInt(string(fields[1]), 10, 64) // the kernel writes valid numbers
			longest = max(longest, wait)
		}
	}
	return time.Duration(longest)
}
