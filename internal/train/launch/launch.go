// Package launch runs the ranks of a job as processes of this machine, and ends all of them when
// one fails.
package launch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/proctree"
	"github.com/outboard-run/outboard/internal/timeslice"
)

// A Job describes the processes to run.
type Job struct {
	Path string
	Args []string // with the program's name
	// Environ returns the environment of a rank.
	Environ func(rank int) []string
	Ranks   int
	// First is the number of the first rank: the others follow it.
	First int
	// Dir is the ranks' working folder; "": that of this process.
	Dir string
	// UID and GID are the user and group of the ranks of a process that runs as root; 0 keeps its
	// own.
	UID, GID uint32
	// OwnSession starts each rank in a session of its own, without the terminal of this process: a
	// rank could type into it (ioctl_tty(2), TIOCSTI).
	OwnSession bool
	// Emit receives the ranks' lines, one call at a time.
	Emit func(Line)
	// Start, if not nil, starts the process of a rank instead of exec.Cmd's Start. If it returns an
	// error no process runs. Its thread is the rank's: an error ends it.
	Start func(*exec.Cmd) error
	// Started, if not nil, is called with the process of each rank.
	Started func(rank, pid int)
	// Continues, if not nil, reports whether a rank whose process has ended without a failure is
	// started again.
	Continues func(rank int) bool
	// Ended, if not nil, is called when a rank has ended and is not started again.
	Ended func(rank int)
	// LeftBefore, if not nil, returns the processes that a rank's process may have lost. Its failure is
	// a consequence if one of them is about to fail, too.
	LeftBefore func(pid int) []int
	// Grace is the time that ranks have to end after SIGTERM; 0: 3 s.
	Grace time.Duration

	// causeLimit is how long the failure of a rank may wait for that of the rank that it has lost;
	// 0: lossLimit.
	causeLimit time.Duration
}

// lossLimit is the default of causeLimit: a program that fails takes some time to end.
const lossLimit = time.Second

// processes has the processes of the ranks that run.
type processes struct {
	mu    sync.Mutex
	ended map[int]chan struct{} // by process; closed when the rank's failure, if any, is known
}

func (p *processes) add(pid int) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := make(chan struct{})
	p.ended[pid] = done
	return func() { close(done) }
}

// awaitLost waits for the end of the processes that a rank's process may have lost.
func (j *Job) awaitLost(ctx context.Context, p *processes, own int) {
	if j.LeftBefore == nil {
		return
	}
	limit := time.NewTimer(j.causeLimit)
	defer limit.Stop()
	for _, pid := range j.LeftBefore(own) {
		p.mu.Lock()
		done := p.ended[pid]
		p.mu.Unlock()
		if done == nil || pid == own {
			continue
		}
		select {
		case <-done:
		case <-ctx.Done():
			return
		case <-limit.C:
			return
		}
	}
}

// killLimit is how long Run waits for the end of ranks that were sent SIGKILL: a process in a call of
// a driver may not return from it.
const killLimit = 10 * time.Second

// ErrUnended says that SIGKILL does not end ranks.
var ErrUnended = errors.New("SIGKILL does not end ranks")

// A Failure reports the rank that failed first.
type Failure struct {
	Rank   int
	Status int // exit status, 128 + the signal that ended it
	// Killed says that the rank was ended by a SIGKILL that this package has not sent: by the
	// kernel for want of memory, or by another process.
	Killed bool
	Err    error
}

func (f *Failure) Error() string {
	if f.Err != nil {
		return fmt.Sprintf("rank %d: %v", f.Rank, f.Err)
	}
	return fmt.Sprintf("rank %d failed first, with status %d", f.Rank, f.Status)
}

func (f *Failure) Unwrap() error { return f.Err }

// Run runs the job until all ranks have ended. It returns a *Failure if one failed: that of the
// first, after which the others were stopped. A killed rank takes precedence over ranks that fail
// at the same time, as they do when they lose it. When ctx ends Run stops all ranks and returns
// ctx's error. It does not wait for ranks that SIGKILL does not end: the error then wraps ErrUnended,
// too.
func Run(ctx context.Context, j Job) error {
	j.setDefaults()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, ends := &lines{emit: j.Emit}, make(chan rankEnd, j.Ranks)
	running := &processes{ended: make(map[int]chan struct{})}
	for i := range j.Ranks {
		go func() {
			f := j.runRank(ctx, j.First+i, out, running, cancel)
			ends <- rankEnd{j.First + i, f}
		}()
	}
	failures, unended := j.awaitEnds(ctx, ends)
	cause := context.Cause(ctx)
	if _, ok := errors.AsType[*Failure](cause); ok {
		if i := slices.IndexFunc(failures, func(f *Failure) bool { return f.Killed }); i >= 0 {
			cause = failures[i]
		}
	}
	if unended != nil {
		return errors.Join(cause, unended)
	}
	return cause
}

func (j *Job) setDefaults() {
	if j.Grace == 0 {
		j.Grace = 3 * time.Second
	}
	if j.causeLimit == 0 {
		j.causeLimit = lossLimit
	}
	if j.Ended == nil {
		j.Ended = func(int) {}
	}
}

// A rankEnd is the end of a rank, nil for one without a failure.
type rankEnd struct {
	rank    int
	failure *Failure
}

// runRank runs the processes of a rank one after the other. A failure is passed to fail.
func (j *Job) runRank(ctx context.Context, rank int, out *lines, running *processes, fail context.CancelCauseFunc) *Failure {
	defer j.Ended(rank)
	stdout, stderr := out.of(rank, false), out.of(rank, true)
	for {
		pid, end := 0, func() {}
		f := j.run(ctx, rank, stdout, stderr, func(started int) { pid, end = started, running.add(started) })
		if f != nil {
			if !f.Killed {
				j.awaitLost(ctx, running, pid)
			}
			fail(f)
		}
		end()
		if f != nil || ctx.Err() != nil || j.Continues == nil || !j.Continues(rank) {
			return f
		}
	}
}

// awaitEnds waits for the ends of all ranks, and returns the failures. It returns an error that names
// the ranks that have not ended killLimit after they were sent SIGKILL.
func (j *Job) awaitEnds(ctx context.Context, ends <-chan rankEnd) (failures []*Failure, unended error) {
	running := make(map[int]bool, j.Ranks)
	for i := range j.Ranks {
		running[j.First+i] = true
	}
	stopping := ctx.Done()
	var limit <-chan time.Time
	for len(running) > 0 {
		select {
		case e := <-ends:
			delete(running, e.rank)
			if e.failure != nil {
				failures = append(failures, e.failure)
			}
		case <-stopping:
			stopping, limit = nil, time.After(j.Grace+killLimit)
		case <-limit:
			return failures, fmt.Errorf("%w: ranks %v, after %v", ErrUnended, slices.Sorted(maps.Keys(running)), killLimit)
		}
	}
	return failures, nil
}

// run runs one rank to its end.
func (j *Job) run(ctx context.Context, rank int, stdout, stderr *rankWriter, started func(pid int)) *Failure {
	defer stdout.flush()
	defer stderr.flush()
	// The kernel ends the rank when the thread that started it ends, not when the process does:
	// this thread belongs to the rank until the rank has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, j.Path)
	cmd.Args, cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = j.Args, j.Environ(rank), j.Dir, stdout, stderr
	// The rank has its own process group, so that its children are signalled with it. It ends with
	// this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !j.OwnSession, Setsid: j.OwnSession, Pdeathsig: syscall.SIGKILL}
	if j.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: j.UID, Gid: j.GID}
	}
	var stops stopTime
	stopped := false // and so long ago that the rank was sent SIGKILL
	cmd.Cancel = func() error {
		stops.set()
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	}
	cmd.WaitDelay = j.Grace
	start := (*exec.Cmd).Start
	if j.Start != nil {
		start = j.Start
	}
	// The node's threads have short time slices, which suit no process that computes.
	var err error
	timeslice.Run(0, func() { err = start(cmd) })
	if err != nil {
		runtime.LockOSThread() // twice: the thread ends with the goroutine
	} else {
		started(cmd.Process.Pid)
		if j.Started != nil {
			j.Started(rank, cmd.Process.Pid)
		}
		signaled := awaitExit(cmd.Process.Pid)
		if stopped = stops.longerThan(j.Grace); signaled {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // Its children, which hold its output.
		}
		err = cmd.Wait()
	}
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // The rest of the group, if any.
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ok && status(exit) == 128+int(syscall.SIGKILL) && !stopped:
		return &Failure{Rank: rank, Status: status(exit), Killed: true}
	case err == nil || ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay):
		// With ErrWaitDelay the rank has ended without a failure, and a process that it left held its
		// output.
		return nil
	case ok:
		return &Failure{Rank: rank, Status: status(exit)}
	}
	return &Failure{Rank: rank, Status: 126, Err: err}
}

// A stopTime is the time at which a rank was asked to end.
type stopTime struct{ at atomic.Pointer[time.Time] }

func (s *stopTime) set() {
	now := time.Now()
	s.at.Store(&now)
}

// longerThan reports whether the rank was asked to end, at least d ago.
func (s *stopTime) longerThan(d time.Duration) bool {
	at := s.at.Load()
	return at != nil && time.Since(*at) >= d
}

// cldExited is the code of a child that has ended by itself (CLD_EXITED, waitid(2)).
const cldExited = 1

// awaitExit waits until a child process has ended, even if others hold its standard output, and
// reports whether it ended by a signal. The process stays for its parent to wait for.
func awaitExit(pid int) (signaled bool) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && info.Code != cldExited
		}
	}
}

// Descends reports whether a process is one of ranks, which are given by their process ids, or was
// started by a rank: see proctree.Descends.
func Descends(pid int, ranks []int) bool { return proctree.Descends(pid, ranks) }

// status returns the exit status as a shell does.
func status(exit *exec.ExitError) int {
	if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return exit.ExitCode()
}
