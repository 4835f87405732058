package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A process that loads a version beside one that serves has a lower priority until its version
// takes requests, so that they get the processors first.
const (
	// backgroundNice is the nice value of such a process. Its weight is a tenth of that of a process
	// with the value 0 (sched_prio_to_weight in the kernel).
	backgroundNice = 10
	// backgroundLimit is how long the priority stays low: on a machine that is always busy the
	// version would hardly be loaded.
	backgroundLimit = 5 * time.Second
)

// enterBackground lowers the priority of the process until LeaveBackground, or backgroundLimit has
// passed. It does nothing where the node could not raise the priority again.
func (w *Worker) enterBackground() {
	if p, ok := w.process.(*child); ok && mayRaisePriority() {
		p.setNice(backgroundNice)
		w.background = time.AfterFunc(backgroundLimit, func() { p.setNice(ownNice()) })
	}
}

// LeaveBackground gives the process the node's own priority. Close must not be in progress.
func (w *Worker) LeaveBackground() {
	if p, ok := w.process.(*child); ok && w.background != nil && w.background.Stop() {
		p.setNice(ownNice())
	}
}

// setNice sets the nice value of all threads of the process and its descendants, unless it has
// ended.
func (c *child) setNice(nice int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return // its number may be another process's
	}
	// A thread that starts meanwhile has the value of the thread that started it, so all threads
	// have the new value once a pass has found no other.
	for changed := true; changed; {
		changed = false
		for _, thread := range threads(c.cmd.Process.Pid) {
			if n, err := niceOf(thread); err == nil && n != nice {
				changed = unix.Setpriority(unix.PRIO_PROCESS, thread, nice) == nil || changed
			}
		}
	}
}

// threads returns the threads of a process and its descendants.
func threads(pid int) []int {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
	if err != nil {
		return nil
	}
	var all []int
	for _, task := range tasks {
		if id, err := strconv.Atoi(filepath.Base(task)); err == nil {
			all = append(all, id)
		}
		children, err := os.ReadFile(filepath.Join(task, "children"))
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(children)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, threads(child)...)
			}
		}
	}
	return all
}

// niceOf returns the nice value of a thread; 0 is the calling thread.
func niceOf(thread int) (int, error) {
	const offset = 20 // of the system call's result, which is never negative
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	return offset - raw, err
}

// ownNice returns the nice value of the node.
func ownNice() int {
	n, err := niceOf(os.Getpid())
	if err != nil {
		return 0
	}
	return n
}

// mayRaisePriority reports whether the kernel lets this process lower a nice value: with
// CAP_SYS_NICE, or within RLIMIT_NICE (setpriority(2)). A thread that ends afterwards tries it.
//
//nolint:gochecknoglobals // tried once
var mayRaisePriority = sync.OnceValue(func() bool {
	allowed := make(chan bool)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		before, err := niceOf(0)
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, 0, before+1)
		}
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, 0, before)
		}
		allowed <- err == nil
	}()
	return <-allowed
})
