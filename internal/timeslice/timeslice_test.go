package timeslice

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// All threads get the slice, those that are started later, too, and keep their priority.
func TestSet(t *testing.T) {
	nice, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Skip("no sched_getattr here:", err)
	}
	if err := Set(Short); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Set(0); err != nil {
			t.Error(err)
		}
	}()
	if Current() == 0 {
		t.Log("this kernel has no slice for each thread")
		return
	}
	started := make(chan int)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		started <- unix.Gettid()
		<-started
	}()
	id := <-started
	if got := Of(id); got != Short {
		t.Errorf("a thread has slices of %v, want %v", got, Short)
	}
	started <- 0
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		id, _ := strconv.Atoi(task.Name())
		attr, err := unix.SchedGetAttr(id, 0)
		if err == nil && (time.Duration(attr.Runtime) != Short || attr.Nice != nice.Nice) {
			t.Errorf("thread %d: slices of %v, nice %d; want %v and %d", id, time.Duration(attr.Runtime), attr.Nice, Short, nice.Nice)
		}
	}
}

// A process that Run's function starts has the slice, and the thread has its own again afterwards.
func TestRun(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := Current()
	if before == 0 {
		t.Log("this kernel has no slice for each thread")
		return
	}
	const other = 700 * time.Microsecond
	child := exec.CommandContext(t.Context(), "sleep", "1000")
	Run(other, func() {
		if err := child.Start(); err != nil {
			t.Error(err)
		}
	})
	if child.Process == nil {
		return
	}
	got := Of(child.Process.Pid)
	_ = child.Process.Kill()
	_ = child.Wait()
	if got != other {
		t.Errorf("the process has slices of %v, want %v", got, other)
	}
	if now := Current(); now != before {
		t.Errorf("the thread has slices of %v afterwards, want %v", now, before)
	}
}
