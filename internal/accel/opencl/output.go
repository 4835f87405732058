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

// output forwards the text that kernels print: it holds the reading end of the pipe that is the
// process's standard output.
type output struct {
	client *client
	pipe   int // -1: none
	// wanted is set once a program may print; until then the pipe is not read.
	wanted atomic.Bool
	mu     sync.Mutex // held while output is read and sent, which keeps it in order
	buf    []byte
}

func newOutput(f *os.File, cl *client) *output {
	o := &output{pipe: -1, client: cl}
	if f != nil {
		o.pipe = int(f.Fd())
		o.buf = make([]byte, 64<<10)
		// The pipe is new and the worker's own: it can be made non-blocking.
		_ = unix.SetNonblock(o.pipe, true)
	}
	return o
}

// drain sends all text printed so far.
func (o *output) drain() error {
	if o.pipe < 0 || !o.wanted.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.drainLocked()
}

func (o *output) drainLocked() error {
	for {
		n, err := unix.Read(o.pipe, o.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n <= 0:
			return nil //nolint:nilerr // empty, or without a writer
		}
		note := argsOutput{Text: o.buf[:n]}
		if err := o.client.notify(opOutput, note.encode(nil)); err != nil {
			return err
		}
	}
}

// pending reports whether printed text is not sent yet. It does not block and may be called while
// the writer is locked.
func (o *output) pending() bool {
	if o.pipe < 0 || !o.wanted.Load() {
		return false
	}
	if !o.mu.TryLock() {
		return true // another goroutine is about to send
	}
	defer o.mu.Unlock()
	for {
		fds := []unix.PollFd{{Fd: int32(o.pipe), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) { // also without a time-out
			return err == nil && n > 0
		}
	}
}

// watch keeps the pipe from filling up while a kernel that prints much runs, and forwards its
// output meanwhile.
func (o *output) watch(ctx context.Context) {
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
		err = o.drainLocked()
		o.mu.Unlock()
		if err != nil || fds[0].Revents&unix.POLLIN == 0 {
			o.client.fail(err)
			return
		}
	}
}

// watchEvery is how often watch checks whether it should end.
const watchEvery = 200 * time.Millisecond
