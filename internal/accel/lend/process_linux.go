package lend

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// spawner starts processes from a thread of its own: the kernel kills a worker when the thread that
// started it ends (PR_SET_PDEATHSIG refers to the thread, not the process), and Go may end any
// thread that no goroutine has locked.
type spawner struct {
	jobs chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func()), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	defer close(s.done)
	// Never unlocked: the thread ends with the goroutine, and the kernel then kills its processes.
	runtime.LockOSThread()
	for job := range s.jobs {
		job()
	}
}

// close ends the thread, and with it every process that it started.
func (s *spawner) close() {
	close(s.jobs)
	<-s.done
}

// command is a process to start.
type command struct {
	args, environ []string
	dir           string
	// files are inherited as descriptors 3, 4, ...
	files      []*os.File
	namespaces sandbox.Namespaces
	// group is the control group in which the process starts; nil for none.
	group *cgroup.Group
}

// startProcess starts a worker in a control group, which may be nil. The worker inherits its ring,
// its control socket, and further files.
func (h *Host) startProcess(dir string, group *cgroup.Group, files ...*os.File) (*process, error) {
	return h.spawner.start(command{
		args: h.opts.Command, environ: workerEnviron(h.opts.Environ, h.opts.Sandbox.Environ),
		dir: dir, files: files, namespaces: h.namespaces, group: group,
	})
}

// start starts a process that is the leader of a new session, and therefore has no terminal.
func (s *spawner) start(c command) (*process, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	cmd := &exec.Cmd{
		Path: c.args[0], Args: c.args, Env: c.environ, Dir: c.dir,
		Stderr: write, ExtraFiles: c.files,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	c.namespaces.Apply(cmd.SysProcAttr)
	started := make(chan error)
	s.jobs <- func() { started <- c.group.Start(cmd) }
	if err := <-started; err != nil {
		_ = read.Close()
		return nil, err
	}
	p := &process{cmd: cmd, group: c.group, stderr: read, stderrDone: make(chan struct{})}
	// When memory runs out, workers are killed before the node.
	_ = os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte("500"), 0)
	go p.readStderr()
	return p, nil
}

// process is a worker and the end of its standard error.
type process struct {
	cmd        *exec.Cmd
	stderr     *os.File
	stderrDone chan struct{}
	group      *cgroup.Group // set before the process runs foreign code

	mu     sync.Mutex
	line   []byte            // an incomplete line
	reason exitReason        // of the complete lines
	report func(line string) // called for each line; nil for none
	reaped bool
}

// readStderr reads standard error and reports its lines.
func (p *process) readStderr() {
	defer close(p.stderrDone)
	defer p.stderr.Close()
	buf := make([]byte, 1024)
	for {
		n, err := p.stderr.Read(buf)
		p.addStderr(buf[:n], err != nil)
		if err != nil {
			return
		}
	}
}

// addStderr adds bytes of standard error; ended completes the last line.
func (p *process) addStderr(b []byte, ended bool) {
	p.mu.Lock()
	lines, report := p.cutLines(b, ended), p.report
	for _, line := range lines {
		p.reason.addLine(line)
	}
	p.mu.Unlock()
	for _, line := range lines {
		if report != nil {
			report(line)
		}
	}
}

// reportLines has report called with each further line of standard error, from one goroutine.
func (p *process) reportLines(report func(line string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = report
}

// cutLines returns the lines that the new bytes complete, without blank ones. A line is cut at
// maxLogText bytes; ended completes the last line. The caller holds p.mu.
func (p *process) cutLines(b []byte, ended bool) []string {
	var lines []string
	add := func() {
		if text := bytes.TrimSpace(p.line); len(text) > 0 {
			lines = append(lines, string(text))
		}
		p.line = p.line[:0]
	}
	for _, c := range b {
		if c == '\n' || len(p.line) == maxLogText {
			add()
		}
		if c != '\n' {
			p.line = append(p.line, c)
		}
	}
	if ended {
		add()
	}
	return lines
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// suspend stops all threads of the process and of its descendants. They can't leave the process
// group: the sandbox refuses setpgid and setsid.
func (p *process) suspend() { p.signal(syscall.SIGSTOP) }

// resume continues the suspended threads.
func (p *process) resume() { p.signal(syscall.SIGCONT) }

// kill ends the whole control group and process group. The process group's number stays in use
// while any process of the group is alive, and the leader is reaped only after the last kill.
func (p *process) kill() {
	p.group.Kill()
	p.signal(syscall.SIGKILL)
}

// signal sends a signal to the process group.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

// wait waits for the process to end, kills the rest of its group, and reaps it. The error says how
// the process ended, nil for exit status 0.
func (p *process) wait() error {
	waitExited(p.cmd.Process.Pid)
	p.kill()
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	err := p.cmd.Wait()
	// A process that left the group may still hold the other end of the pipe.
	_ = p.stderr.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	<-p.stderrDone
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return errors.New(exit.String())
	}
	return err
}

// waitExited waits until the process has ended, without reaping it, so that its number is not
// reused yet.
func waitExited(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// exitMessage returns the line of standard error that says why the process ended.
func (p *process) exitMessage() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason.String()
}

// outOfMemory reports whether the kernel has killed a process of the control group because its
// memory was exhausted.
func (p *process) outOfMemory() bool { return p.group.Killed() > 0 }
