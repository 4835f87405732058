package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/internal/timeslice"
)

// program is the program that `outboard run` starts.
type program struct {
	path    string
	args    []string
	environ []string
	// slice is the time slice of the program's threads, 0: that of this process.
	slice time.Duration
}

// findProgram resolves a program's path as a shell does.
func findProgram(env *Env, name string) (string, error) {
	switch {
	case name == "":
		return "", &statusError{status: statusNotFound, err: errors.New("the program's name is empty")}
	case strings.Contains(name, "/"):
		return name, checkExecutable(name)
	}
	var found error
	for _, dir := range filepath.SplitList(env.getenv("PATH")) {
		path := filepath.Join(dir, name)
		if dir == "" {
			path = "./" + name
		}
		err := checkExecutable(path)
		if err == nil {
			return path, nil
		}
		if e, ok := errors.AsType[*statusError](err); ok && e.status == statusNotExecutable {
			found = err
		}
	}
	if found != nil {
		return "", found
	}
	return "", &statusError{status: statusNotFound, err: fmt.Errorf("%s: command not found", name)}
}

func checkExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &statusError{status: statusNotFound, err: fmt.Errorf("%s: no such file", path)}
	case err != nil:
		return &statusError{status: statusNotExecutable, err: err}
	case info.IsDir():
		return &statusError{status: statusNotExecutable, err: fmt.Errorf("%s: is a folder", path)}
	case info.Mode()&0o111 == 0:
		return &statusError{status: statusNotExecutable, err: fmt.Errorf("%s: permission denied: not executable", path)}
	}
	return nil
}

// run starts the program, forwards signals, and returns its exit status in a shell's form. It waits
// for the program even if ctx ends: the signal that ended ctx reaches the program too.
func (p *program) run(ctx context.Context, env *Env) (int, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, withoutIgnored(syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)...)
	defer signal.Stop(signals)
	cmd := &exec.Cmd{
		Path: p.path, Args: p.args, Env: p.environ,
		Stdin: env.Stdin, Stdout: env.Stdout, Stderr: env.Stderr,
	}
	if err := p.start(cmd); err != nil {
		return 0, &statusError{status: statusNotExecutable, err: err}
	}
	done := make(chan struct{})
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		forward(cmd.Process, signals, done)
	}()
	err := cmd.Wait()
	close(done)
	<-forwarded
	return waitStatus(cmd, err)
}

// start starts the program with its time slice.
func (p *program) start(cmd *exec.Cmd) (err error) {
	if p.slice == 0 {
		return cmd.Start()
	}
	timeslice.Run(p.slice, func() { err = cmd.Start() })
	return err
}

// forward forwards signals until done is closed. Signals of a terminal's keys reach the program
// directly, since it is in the same process group.
func forward(process *os.Process, signals <-chan os.Signal, done <-chan struct{}) {
	terminal := hasTerminal()
	for {
		select {
		case <-done:
			return
		case s := <-signals:
			if terminal && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
				continue
			}
			// An error means that the process has just ended.
			_ = process.Signal(s)
		}
	}
}

func hasTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	_ = tty.Close()
	return true
}

func waitStatus(cmd *exec.Cmd, err error) (int, error) {
	if cmd.ProcessState == nil {
		return 0, err
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return statusSignal + int(status.Signal()), nil
	}
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}
