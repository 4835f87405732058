package lend

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// until waits for a condition that processes bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: ", what)
		}
	}
}

// spin starts a process that computes on one processor, beside others of it.
func spin(t *testing.T, s *spawner) *process {
	t.Helper()
	p, err := s.start(command{args: []string{"/bin/sh", "-c", "while :; do :; done"}, dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		_ = p.wait() // it was killed
	})
	return p
}

// The clocks of processes count what they compute, and how long they wait for a processor that
// others use. A process that is stopped does neither.
func TestClocksOfProcesses(t *testing.T) {
	if _, err := os.Stat(procOf(os.Getpid(), "schedstat")); err != nil {
		t.Skip("this kernel does not count waits: ", err)
	}
	s := newSpawner()
	t.Cleanup(s.close)
	processor, others := unix.CPUSet{}, unix.CPUSet{}
	if err := unix.SchedGetaffinity(0, &others); err != nil {
		t.Fatal(err)
	}
	for i := range len(others) * 64 {
		if others.IsSet(i) {
			processor.Set(i)
			break
		}
	}
	first, second := spin(t, s), spin(t, s)
	for _, p := range []*process{first, second} { // they wait for each other
		if err := unix.SchedSetaffinity(p.pid(), &processor); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "both compute and wait", func() bool {
		return processorTime(first.pid()) > 20*time.Millisecond && longestWait(first.pid()) > 20*time.Millisecond &&
			processorTime(second.pid()) > 20*time.Millisecond && longestWait(second.pid()) > 20*time.Millisecond
	})
	first.suspend()
	waitFor(t, first, unix.WSTOPPED)
	until(t, "the stopped process neither computes nor waits", func() bool { // once it has left its processor
		used, waited, other := processorTime(first.pid()), longestWait(first.pid()), processorTime(second.pid())
		until(t, "the other one computes", func() bool { return processorTime(second.pid()) > other+50*time.Millisecond })
		return processorTime(first.pid()) == used && longestWait(first.pid()) == waited
	})
	_ = syscall.Kill(-second.pid(), syscall.SIGKILL)
	if err := second.wait(); err == nil {
		t.Error("the process was not killed")
	}
	if used, waited := processorTime(second.pid()), longestWait(second.pid()); used != 0 || waited != 0 {
		t.Errorf("the clocks of a process that has ended: %v, %v", used, waited)
	}
}

// The clocks of a worker in a sandbox are those of the process that executes its kernels, and not
// of the init that waits for it.
func TestClocksAreThoseOfTheWorker(t *testing.T) {
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		t.Skip("this kernel does not list children (CONFIG_PROC_CHILDREN): ", err)
	}
	alone := exec.Command("/bin/sleep", "3600")
	sandboxed := exec.Command("/bin/sh", "-c", "while :; do :; done & wait")
	sandboxed.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	for _, cmd := range []*exec.Cmd{alone, sandboxed} {
		if err := cmd.Start(); errors.Is(err, fs.ErrPermission) {
			t.Skip("this user can't create PID namespaces: ", err)
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
	}
	if got := childOfInit(alone.Process.Pid); got != alone.Process.Pid {
		t.Errorf("process %d executes the kernels of %d, which has no PID namespace of its own", got, alone.Process.Pid)
	}
	until(t, "the init has a child", func() bool { return childOfInit(sandboxed.Process.Pid) != sandboxed.Process.Pid })
	clocks := workerClocks{"a": {priority: priority{process: &process{cmd: sandboxed}}}}
	until(t, "the worker's clock advances", func() bool { return clocks.Used("a") > 100*time.Millisecond })
	if init := processorTime(sandboxed.Process.Pid); init > clocks.Used("a") {
		t.Errorf("the init has computed for %v, the worker for %v", init, clocks.Used("a"))
	}
}
