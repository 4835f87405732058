package outboardtest_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/timeslice"
	"github.com/outboard-run/outboard/outboardtest"
)

// sliceOf returns the time slice of a thread.
func sliceOf(t *testing.T, id int) time.Duration {
	t.Helper()
	attr, err := unix.SchedGetAttr(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(attr.Runtime)
}

// TestSlicesOfRun: the threads of `outboard run`, which relay the messages of a session, have short
// time slices; the program has those that `outboard run` was started with.
func TestSlicesOfRun(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: []outboardtest.Spec{{Name: "harbour"}}})
	run := p.Node("harbour").Command(t.Context(), "run", "--", "sh", "-c", "echo $$; exec cat")
	stdin, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = stdin.Close()
		if err := run.Wait(); err != nil {
			t.Error(err)
		}
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	program, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	own := sliceOf(t, 0)
	if own == 0 {
		t.Log("this kernel has no slice for each thread")
		return
	}
	if got := sliceOf(t, program); got != own {
		t.Errorf("the program has slices of %v, want %v", got, own)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", run.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		if got := sliceOf(t, id); got != timeslice.Short {
			t.Errorf("thread %d has slices of %v, want %v", id, got, timeslice.Short)
		}
	}
}
