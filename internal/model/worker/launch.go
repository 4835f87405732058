package worker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/lograte"
	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/timeslice"
)

// A Spawner starts workers from a dedicated thread: the kernel kills a worker when the thread that
// started it ends (PR_SET_PDEATHSIG refers to the thread, not the process), and Go may end any
// thread that no goroutine has locked.
type Spawner struct {
	// Command is the program of a worker with its arguments.
	Command []string
	// Namespaces are the namespaces in which workers start.
	Namespaces sandbox.Namespaces
	// Groups bounds the memory of workers; nil sets no bound.
	Groups *cgroup.Tree
	Log    *slog.Logger

	jobs chan func()
	done chan struct{}
}

// Open starts the thread.
func (s *Spawner) Open() {
	s.jobs, s.done = make(chan func()), make(chan struct{})
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for job := range s.jobs {
			job()
		}
	}()
}

// Close ends the thread, and thereby every worker that it started.
func (s *Spawner) Close() {
	close(s.jobs)
	<-s.done
}

// Launcher returns a function that starts a worker with the given name. memory is the most bytes
// that it may use, 0 for no limit; name is unique on the node.
func (s *Spawner) Launcher(name string, memory int64) helper.Launcher {
	return func(_ string, socket *os.File) (helper.Process, error) { return s.start(name, memory, socket) }
}

func (s *Spawner) start(name string, memory int64, socket *os.File) (helper.Process, error) {
	own, err := helper.Duplicate(socket)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	cmd := &exec.Cmd{Path: s.Command[0], Args: s.Command, ExtraFiles: []*os.File{own}, SysProcAttr: &syscall.SysProcAttr{}}
	s.Namespaces.Apply(cmd.SysProcAttr)
	return s.startCommand(name, memory, cmd)
}

// StartServer starts a third-party server in the node's own namespaces, with the variables of
// environment in addition to a few of the node's variables.
func (s *Spawner) StartServer(name string, memory int64, command, environment []string) (helper.Process, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, outboard.Errorf(outboard.NotFound, "", "%w", err)
	}
	return s.startCommand(name, memory, &exec.Cmd{Path: path, Args: command, Env: append(serverEnviron(), environment...), SysProcAttr: &syscall.SysProcAttr{}})
}

// serverEnviron returns the node's environment without the variables that contain its secrets.
func serverEnviron() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// startCommand starts a command in a control group, from the thread whose end kills it.
func (s *Spawner) startCommand(name string, memory int64, cmd *exec.Cmd) (helper.Process, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	group, err := s.Groups.Make(name, cgroup.Limits{Memory: memory, Tasks: maxTasks, Load: 2})
	if err != nil {
		s.Log.Warn("a model's process has no control group", "name", name, "error", err)
		group = nil
	}
	cmd.Stderr, cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Pdeathsig = write, true, syscall.SIGKILL
	started := make(chan error)
	// The node's threads have short time slices, which suit no process that computes.
	s.jobs <- func() { timeslice.Run(0, func() { started <- cmd.Start() }) }
	if err := <-started; err != nil {
		return nil, errors.Join(err, read.Close(), group.Remove())
	}
	c := &child{cmd: cmd, group: group, stderr: read, log: lograte.Unlimited(s.Log).With("model", name), memory: memory, exited: make(chan struct{})}
	if err := group.Add(cmd.Process.Pid); err != nil {
		s.Log.Warn("a model's process is in no control group", "name", name, "error", err)
	}
	// When memory runs out, workers are killed before the node.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("500"), 0)
	c.reading.Go(c.readStderr)
	if memory > 0 {
		go c.watchMemory()
	}
	return c, nil
}

// A child is the process of a worker or a server.
type child struct {
	cmd     *exec.Cmd
	group   *cgroup.Group
	stderr  *os.File
	log     *slog.Logger
	lines   lograte.Limit // of standard error
	memory  int64
	reading sync.WaitGroup
	exited  chan struct{}

	mu       sync.Mutex
	last     string // last line of standard error
	exceeded bool   // it exceeded the limit of memory
	reaped   bool
}

// PID returns the process's number.
func (c *child) PID() int { return c.cmd.Process.Pid }

// Kill implements helper.Process. It kills the whole process group.
func (c *child) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		c.group.Kill()
	}
}

// Wait implements helper.Process.
func (c *child) Wait() error {
	for {
		// The process is not reaped yet, so that its number is not reused.
		err := unix.Waitid(unix.P_PID, c.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	c.Kill()
	c.mu.Lock()
	c.reaped = true
	c.mu.Unlock()
	close(c.exited)
	err := c.cmd.Wait()
	_ = c.stderr.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	c.reading.Wait()
	killed := c.group.Killed() > 0
	if removed := c.group.Remove(); removed != nil {
		c.log.Warn("a control group was not removed", "error", removed)
	}
	return c.exitError(err, killed)
}

// exitError returns the error by which the process ended; nil if it succeeded.
func (c *child) exitError(err error, killed bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case killed || c.exceeded:
		return outboard.Errorf(outboard.Exhausted, "", "it held more than its %v of memory: raise `memory` in the model's configuration", outboard.Bytes(c.memory))
	case err != nil && c.last != "":
		return fmt.Errorf("%w: %s", err, c.last)
	}
	return err
}

// maxLine bounds a line of a worker's log.
const maxLine = 4 << 10

// readStderr logs the process's standard error, up to lograte's bounds, and keeps the last line.
func (c *child) readStderr() {
	defer c.stderr.Close()
	in := bufio.NewReaderSize(c.stderr, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			text := strings.ToValidUTF8(string(line), "?")
			c.mu.Lock()
			if !strings.HasPrefix(text, "goroutine ") && !strings.HasPrefix(text, "\t") {
				c.last = text
			}
			c.mu.Unlock()
			c.logLine(text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				c.log.Debug("the log of a model's process ended", "error", err)
			}
			return
		}
	}
}

// logLine logs a line of the process, which may execute what a model's file made of it.
func (c *child) logLine(text string) {
	dropped, ok := c.lines.Allow(time.Now())
	if dropped > 0 {
		c.log.Warn("lines of a model's process were dropped", "lines", dropped)
	}
	if ok {
		c.log.Warn("a model's process wrote", "line", text)
	}
}

// memoryInterval is the interval at which the memory of a process is measured.
const memoryInterval = 250 * time.Millisecond

// watchMemory kills the process when it uses too much memory, in case no control group does.
func (c *child) watchMemory() {
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.exited:
			return
		case <-ticker.C:
		}
		if residentMemory(c.PID()) > c.memory {
			c.mu.Lock()
			c.exceeded = true
			c.mu.Unlock()
			c.Kill()
			return
		}
	}
}

// residentMemory returns the private memory of a process and its children in bytes, 0 if it can't
// be read. A process in its own PID namespace is an init with one child.
func residentMemory(pid int) int64 {
	total := anonymousMemory(pid)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return total
	}
	for field := range strings.FieldsSeq(string(children)) {
		if child, err := strconv.Atoi(field); err == nil {
			total += anonymousMemory(child)
		}
	}
	return total
}

func anonymousMemory(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nRssAnon:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
