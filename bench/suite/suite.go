// Package suite runs third-party OpenCL programs on the local driver and on a
// borrowed device, and compares their output.
package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A Program is a command and the part of its output that must be the same everywhere.
type Program struct {
	Name string
	Args []string
	// Essence reduces a run's output to the part that must not differ.
	Essence func(Result) (string, error)
	// Home gives the program a fresh home folder, for programs that keep caches there; runs with
	// the same folder reuse them.
	Home bool
	// Limit bounds a run, which may hang; 0 means 15 minutes.
	Limit time.Duration
}

// A Result is the result of one run.
type Result struct {
	Stdout, Stderr string
	Wall           time.Duration
	// CPU is the processor time of the command and of the children that it has waited for.
	CPU time.Duration
	Err error
}

// ExitStatus returns the program's exit status, -1 if it has none.
func (r Result) ExitStatus() int {
	if r.Err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](r.Err); ok {
		return exit.ExitCode()
	}
	return -1
}

// A Launcher starts a command: Local directly, others through `outboard run`.
type Launcher func(ctx context.Context, name string, args ...string) *exec.Cmd

// Local starts a command directly.
func Local(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}

// Run runs the program once. home is its home folder if it needs one.
func (p Program) Run(ctx context.Context, launcher Launcher, home string) Result {
	ctx, cancel := context.WithTimeout(ctx, p.limit())
	defer cancel()
	cmd := launcher(ctx, p.Args[0], p.Args[1:]...)
	cmd.WaitDelay = time.Minute // on a busy machine
	if p.Home {
		// Hashcat takes the folder of its data from the user's entry, which may name a folder that
		// does not exist.
		cmd.Env = append(environment(cmd), "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"), "XDG_DATA_HOME="+filepath.Join(home, "data"))
		cmd.Dir = home
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	switch ctx.Err() {
	case context.DeadlineExceeded:
		err = fmt.Errorf("no end within %v", p.limit())
	case context.Canceled:
		err = context.Canceled
	}
	r := Result{Stdout: stdout.String(), Stderr: stderr.String(), Wall: time.Since(start), Err: err}
	if s := cmd.ProcessState; s != nil {
		r.CPU = s.UserTime() + s.SystemTime()
	}
	return r
}

func environment(cmd *exec.Cmd) []string {
	if cmd.Env != nil {
		return cmd.Env
	}
	return os.Environ()
}

func (p Program) limit() time.Duration {
	if p.Limit > 0 {
		return p.Limit
	}
	return 15 * time.Minute
}

// Compare returns an error that describes how two runs differ, nil if they do not.
func (p Program) Compare(local, borrowed Result) error {
	want, err := p.Essence(local)
	if err != nil {
		return fmt.Errorf("local run: %w", err)
	}
	got, err := p.Essence(borrowed)
	if err != nil {
		return fmt.Errorf("borrowed run: %w\n%s", err, tail(borrowed.Stderr+borrowed.Stdout))
	}
	if got != want {
		return fmt.Errorf("different results (exit status %d, locally %d):\n%s\n%s",
			borrowed.ExitStatus(), local.ExitStatus(), difference(want, got), tail(borrowed.Stderr))
	}
	return nil
}

// difference returns the first line that differs.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		x, y := line(a, i), line(b, i)
		if x != y {
			return fmt.Sprintf("line %d\n  local:    %s\n  borrowed: %s", i+1, x, y)
		}
	}
	return ""
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

func tail(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 2000 {
		return "..." + s[len(s)-2000:]
	}
	return s
}

var errNoOutput = errors.New("it printed nothing that counts")
