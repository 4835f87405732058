package outboardtest_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/timeslice"
	"github.com/outboard-run/outboard/outboardtest"
)

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
	own := timeslice.Current()
	if own == 0 {
		t.Log("this kernel has no slice for each thread")
		return
	}
	if got := timeslice.Of(program); got != own {
		t.Errorf("the program has slices of %v, want %v", got, own)
	}
	// The thread that started the program has the program's slices until the kernel has told it so.
	eventually(t, "short time slices of all threads", func() bool {
		return allThreadsHave(t, run.Process.Pid, timeslice.Short)
	})
}

// allThreadsHave reports whether all threads of a process have that time slice.
func allThreadsHave(t *testing.T, pid int, want time.Duration) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc(threads, func(thread os.DirEntry) bool {
		id, err := strconv.Atoi(thread.Name())
		return err != nil || timeslice.Of(id) != want
	})
}
