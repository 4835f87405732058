package worker

import (
	"bufio"
	"log/slog"
	"os/exec"
	"syscall"
	"testing"
)

// All threads of a process and of its children get the value, and back again. A process that has
// ended is left alone: its number may be another process's.
func TestNice(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 600 & echo started; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // killed
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, log: slog.New(slog.DiscardHandler)}
	all := threads(cmd.Process.Pid)
	if len(all) != 2 {
		t.Fatalf("the shell and its child have the threads %v", all)
	}
	own := ownNice()
	values := []int{own + backgroundNice, own}
	if !mayRaisePriority() {
		values = values[:1]
	}
	for _, want := range values {
		c.setNice(want)
		for _, thread := range all {
			if got, err := niceOf(thread); err != nil || got != want {
				t.Errorf("thread %d has the nice value %d, %v, want %d", thread, got, err, want)
			}
		}
	}
	before, _ := niceOf(cmd.Process.Pid)
	c.reaped = true
	c.setNice(before + 1)
	if got, err := niceOf(cmd.Process.Pid); err != nil || got != before {
		t.Errorf("after the end: %d, %v", got, err)
	}
}
