package opencl

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// output is what kernels print: the reading end of the pipe that is the
// process's standard output.
type output struct {
	pipe int // -1: none
	// wanted says that some program may print; before that nobody looks.
	wanted atomic.Bool
	mu     sync.Mutex // held while output is read and sent, so that it stays in order
	buf    []byte
}

func (o *output) init(f *os.File) {
	o.pipe = -1
	if f != nil {
		o.pipe = int(f.Fd())
		o.buf = make([]byte, 64<<10)
		// A pipe of our own that was just made: it can be made non-blocking.
		_ = unix.SetNonblock(o.pipe, true)
	}
}

// drainOutput sends everything that was printed so far.
func (w *Worker) drainOutput() error {
	if w.output.pipe < 0 || !w.output.wanted.Load() {
		return nil
	}
	w.output.mu.Lock()
	defer w.output.mu.Unlock()
	return w.drainLocked()
}

func (w *Worker) drainLocked() error {
	o := &w.output
	for {
		n, err := unix.Read(o.pipe, o.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n <= 0:
			return nil //nolint:nilerr // empty, or nobody can write any more
		}
		note := argsOutput{Text: o.buf[:n]}
		if err := w.notify(opOutput, note.encode(nil)); err != nil {
			return err
		}
	}
}

// outputWaits reports whether something was printed that is not sent yet. It
// does not block and may be called while the writer is locked.
func (w *Worker) outputWaits() bool {
	o := &w.output
	if o.pipe < 0 || !o.wanted.Load() {
		return false
	}
	if !o.mu.TryLock() {
		return true // somebody is about to send some
	}
	defer o.mu.Unlock()
	fds := []unix.PollFd{{Fd: int32(o.pipe), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// watchOutput keeps the pipe from filling up while a kernel that prints much
// runs, and shows what it prints meanwhile.
func (w *Worker) watchOutput(ctx context.Context) {
	o := &w.output
	if o.pipe < 0 {
		return
	}
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(o.pipe), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(watchEvery/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if n <= 0 {
			continue
		}
		o.mu.Lock()
		err = w.drainLocked()
		o.mu.Unlock()
		if err != nil || fds[0].Revents&unix.POLLIN == 0 {
			w.fault(err)
			return
		}
	}
}

// watchEvery is how often the watcher looks whether it should end.
const watchEvery = 200 * time.Millisecond
