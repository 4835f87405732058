package compute

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Memory returns the part of the program's memory at an address, or false if there is none.
type Memory func(at, size uint32) ([]byte, bool)

// part returns the part at an address, or false for a nil Memory.
func (m Memory) part(at, size uint32) ([]byte, bool) {
	if m == nil {
		return nil, false
	}
	return m(at, size)
}

// Result is the result of a list of commands.
type Result struct {
	// Read contains the data of the list's reads, one after the other.
	Read []byte
	// Moved counts the bytes sent to and read from the device.
	Moved int64
	// Printed is the beginning of the kernels' output meanwhile: of the list's kernels, and where
	// several holders use the device at once, of their kernels too. It may be set in addition to an
	// error.
	Printed []byte
}

// MaxPrinted bounds Result.Printed.
const MaxPrinted = 64 << 10

// Do executes a list of commands, and waits for them. It accesses the list and memory only during
// the call.
//
// It returns an error in the list, a StatusError, or the reason of the session's end.
func (h *Holder) Do(ctx context.Context, list []byte, memory Memory) (Result, error) {
	commands, err := Decode(list)
	if err != nil {
		return Result{}, err
	}
	if h.abandoned {
		return Result{}, ErrGivenUp
	}
	r := &run{holder: h, ctx: ctx, memory: memory, failedAt: len(commands)}
	if err := r.validate(commands); err != nil {
		return Result{}, err
	}
	defer r.watchContext()()
	h.device.startCapture(r)
	result, err := r.do(commands)
	result.Printed = h.device.stopCapture(r)
	return result, err
}

// run is the execution of a list of commands.
type run struct {
	holder *Holder
	ctx    context.Context //nolint:containedctx // of one Do
	memory Memory

	read           []byte // result of reads, with the capacity for all of them
	bytesMoved     int64
	serials        []uint64
	waits          []*wait
	overwritten    []*buffer // buffers whose contents the run is to replace
	createdBuffers []uint32  // by number
	createdKernels []*kernel // that it made

	// Under Device.mu: the first command that failed, the output, and the position in the ring at
	// which the run began.
	failedAt int
	failure  error
	printed  []byte
	start    uint64
}

// validate performs the checks that need no execution, and resolves the commands' places in the
// program's memory.
func (r *run) validate(commands []Command) error {
	total := uint64(0)
	for i := range commands {
		c := &commands[i]
		if c.op == opRead {
			total += c.size
		}
		if c.op != opWriteFrom && c.op != opReadTo {
			continue
		}
		b, ok := r.memory.part(c.at, uint32(c.size))
		if !ok {
			return r.commandError(i, c, errOutsideMemory)
		}
		c.bytes = b
	}
	if total > MaxResult {
		return fmt.Errorf("list of commands: it reads %d bytes into the result, at most %d are allowed: read into memory", total, MaxResult)
	}
	r.read = make([]byte, 0, total)
	return nil
}

var errOutsideMemory = errors.New("the place lies outside of the memory")

func (r *run) commandError(i int, c *Command, err error) error {
	operation := c.op.String()
	if c.op == opLaunch {
		operation = "launch of " + c.kernel
	}
	return fmt.Errorf("command %d, %s: %w", i, operation, err)
}

// watchContext fails the session when the context ends while a message is half written: half a
// message can't be taken back.
func (r *run) watchContext() (stop func()) {
	h, over := r.holder, make(chan struct{})
	cancel := context.AfterFunc(r.ctx, func() {
		if !h.posting.Load() {
			return // no further message is begun
		}
		timer := time.NewTimer(stallLimit)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
			h.device.failStalled()
		}
	})
	return func() {
		close(over)
		cancel()
	}
}

// do sends the commands and waits for the last one.
func (r *run) do(commands []Command) (Result, error) {
	for i := range commands {
		if err := r.command(i, &commands[i]); err != nil {
			r.recordError(i, err)
			break
		}
	}
	err := r.finish(commands)
	r.holder.device.clearOwners(r.serials)
	if err != nil {
		r.undo()
		return Result{Moved: r.bytesMoved}, err
	}
	return Result{Read: r.read, Moved: r.bytesMoved}, nil
}

// undo releases objects that the run may not have created although it sent their creation, and
// marks buffers whose contents it may not have replaced.
func (r *run) undo() {
	h := r.holder
	for _, b := range r.overwritten {
		b.initialized = false
	}
	for _, number := range r.createdBuffers {
		if b := h.buffers[number]; b != nil {
			_ = r.release(kindMem, b.id) // the session has ended, or is about to
			delete(h.buffers, number)
		}
	}
	for _, k := range r.createdKernels {
		_ = r.release(kindKernel, k.id) // as above
		k.id = 0
	}
}

func (r *run) release(kind uint32, id uint64) error {
	return r.holder.post(r, func() error {
		return r.holder.device.send(opRelease, &argsRelease{Kind: kind, Object: id}, owner{})
	})
}

// recordError stores the error of the first command that failed.
func (r *run) recordError(index int, err error) {
	d := r.holder.device
	d.mu.Lock()
	defer d.mu.Unlock()
	r.recordErrorLocked(index, err)
}

// recordErrorLocked is recordError for callers that hold Device.mu.
func (r *run) recordErrorLocked(index int, err error) {
	if index < r.failedAt {
		r.failedAt, r.failure = index, err
	}
}

// finish waits until the device has executed everything that was sent.
func (r *run) finish(commands []Command) error {
	h, last := r.holder, len(commands)-1
	if last < 0 {
		return nil
	}
	if n := len(r.waits); r.ctx.Err() == nil && (n == 0 || r.waits[n-1].owner.index != last) {
		w, err := h.request(r, opClFinish, &argsClFinish{CommandQueue: h.queue}, owner{r, last}, nil)
		if err != nil {
			r.recordError(last, err)
		} else {
			r.waits = append(r.waits, w)
		}
	}
	for i, w := range r.waits {
		select {
		case <-w.done:
			if _, err := w.result(); err != nil {
				r.recordError(w.owner.index, err)
			}
			continue
		case <-r.ctx.Done():
		}
		r.abandon(r.waits[i:])
		return context.Cause(r.ctx)
	}
	if r.ctx.Err() != nil {
		r.abandon(nil)
		return context.Cause(r.ctx)
	}
	return r.firstError(commands)
}

// firstError returns the error of the first command that failed.
func (r *run) firstError(commands []Command) error {
	d := r.holder.device
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case r.failure == nil:
		return nil
	case d.err != nil:
		return d.err // every other failure follows from that
	}
	return r.commandError(r.failedAt, &commands[r.failedAt], r.failure)
}

// abandon stops waiting for the device. Nothing more is written to the program's memory.
func (r *run) abandon(waits []*wait) {
	for _, w := range waits {
		r.holder.device.abandonWait(w)
	}
	r.holder.abandoned = true
	r.holder.device.markStuck()
}

// post sends a message, which may wait for space in the ring.
func (h *Holder) post(r *run, send func() error) error {
	h.posting.Store(true)
	defer h.posting.Store(false)
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	return send()
}

func (h *Holder) send(r *run, i int, op uint16, args encoder, bulk ...[]byte) error {
	return h.post(r, func() error { return h.device.send(op, args, owner{r, i}, bulk...) })
}

func (h *Holder) request(r *run, op uint16, args encoder, o owner, to []byte) (w *wait, err error) {
	err = h.post(r, func() error {
		w, err = h.device.request(op, args, o, to)
		return err
	})
	return w, err
}

func (r *run) command(i int, c *Command) error {
	switch c.op {
	case opBuffer:
		return r.buffer(i, c)
	case opWrite, opWriteFrom:
		return r.write(i, c)
	case opProgram:
		return r.program(i, c)
	case opLaunch:
		return r.launch(i, c)
	case opRead, opReadTo:
		return r.readBack(i, c)
	case opFree:
		return r.free(c)
	}
	return nil
}

// stallLimit is how long a message may wait for space in the ring once its caller has given
// up. The session then ends, since it can't continue after half a message.
const stallLimit = 100 * time.Millisecond
