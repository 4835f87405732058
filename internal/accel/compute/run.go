package compute

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Memory is the program's: it gives the part at an address, or false if there is none.
type Memory func(at, size uint32) ([]byte, bool)

// part is no memory where there is none.
func (m Memory) part(at, size uint32) ([]byte, bool) {
	if m == nil {
		return nil, false
	}
	return m(at, size)
}

// A Result is what a list of commands brought.
type Result struct {
	// Read is what it read, one after the other.
	Read []byte
	// Moved counts the bytes that went to the device and came back.
	Moved int64
	// Printed is the beginning of what kernels printed meanwhile: those of the list, and
	// where several holders use the device at once theirs, too. There may be some beside
	// an error.
	Printed []byte
}

// MaxPrinted bounds Result.Printed.
const MaxPrinted = 64 << 10

// Do does a list of commands, and waits for them. Only during the call does it look at
// the list and at memory.
//
// Errors: what is wrong with the list, a StatusError, or why the session ended.
func (h *Holder) Do(ctx context.Context, list []byte, memory Memory) (Result, error) {
	commands, err := Decode(list)
	if err != nil {
		return Result{}, err
	}
	if h.lost {
		return Result{}, ErrGivenUp
	}
	r := &run{holder: h, ctx: ctx, memory: memory, failedAt: len(commands)}
	if err := r.allow(commands); err != nil {
		return Result{}, err
	}
	defer r.watch()()
	h.device.startCapture(r)
	result, err := r.do(commands)
	result.Printed = h.device.stopCapture(r)
	return result, err
}

// A run is a list of commands under way.
type run struct {
	holder *Holder
	ctx    context.Context //nolint:containedctx // of one Do
	memory Memory

	read    []byte // where reads into the result go
	moved   int64
	serials []uint64
	waits   []*wait
	cleaned []*buffer // whose contents the run is to replace
	made    []uint32  // buffers
	kernels []*kernel // that it made

	// Under Device.mu: the first command that failed, what was printed, and how much the
	// worker had sent when the run began.
	failedAt int
	failure  error
	printed  []byte
	start    uint64
}

// allow looks at what can be known before anything is done.
func (r *run) allow(commands []Command) error {
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
			return r.at(i, c, errNoMemory)
		}
		c.bytes = b
	}
	if total > MaxResult {
		return fmt.Errorf("list of commands: it reads %d bytes into the result, at most %d are allowed: read into memory", total, MaxResult)
	}
	r.read = make([]byte, 0, total)
	return nil
}

var errNoMemory = errors.New("the place lies outside of the memory")

func (r *run) at(i int, c *Command, err error) error {
	what := c.op.String()
	if c.op == opLaunch {
		what = "launch of " + c.kernel
	}
	return fmt.Errorf("command %d, %s: %w", i, what, err)
}

// watch ends the session when the caller gives up while a message finds no room: half a
// message can't be taken back.
func (r *run) watch() (stop func()) {
	h, over := r.holder, make(chan struct{})
	cancel := context.AfterFunc(r.ctx, func() {
		if !h.posting.Load() {
			return // the next one is not begun
		}
		timer := time.NewTimer(stallLimit)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
			h.device.stall()
		}
	})
	return func() {
		close(over)
		cancel()
	}
}

// do sends the commands and waits for the last.
func (r *run) do(commands []Command) (Result, error) {
	for i := range commands {
		if err := r.command(i, &commands[i]); err != nil {
			r.note(i, err)
			break
		}
	}
	err := r.finish(commands)
	r.holder.device.disown(r.serials)
	if err != nil {
		r.undo()
		return Result{Moved: r.moved}, err
	}
	return Result{Read: r.read, Moved: r.moved}, nil
}

// undo takes back what may not be there although it was sent: what was made, and the
// contents that replaced somebody's before.
func (r *run) undo() {
	h := r.holder
	for _, b := range r.cleaned {
		b.clean = false
	}
	for _, number := range r.made {
		if b := h.buffers[number]; b != nil {
			_ = r.release(kindMem, b.id) // the session has ended, or is about to
			delete(h.buffers, number)
		}
	}
	for _, k := range r.kernels {
		_ = r.release(kindKernel, k.id) // as above
		k.id = 0
	}
}

func (r *run) release(kind uint32, id uint64) error {
	return r.holder.post(r, func() error {
		return r.holder.device.send(opRelease, &argsRelease{Kind: kind, Object: id}, owner{})
	})
}

// note remembers the first command that failed.
func (r *run) note(index int, err error) {
	d := r.holder.device
	d.mu.Lock()
	defer d.mu.Unlock()
	r.fail(index, err)
}

// fail is note for who holds Device.mu.
func (r *run) fail(index int, err error) {
	if index < r.failedAt {
		r.failedAt, r.failure = index, err
	}
}

// finish waits until the device has done what was sent.
func (r *run) finish(commands []Command) error {
	h, last := r.holder, len(commands)-1
	if last < 0 {
		return nil
	}
	if n := len(r.waits); r.ctx.Err() == nil && (n == 0 || r.waits[n-1].owner.index != last) {
		w, err := h.ask(r, opClFinish, &argsClFinish{CommandQueue: h.queue}, owner{r, last}, nil)
		if err != nil {
			r.note(last, err)
		} else {
			r.waits = append(r.waits, w)
		}
	}
	for i, w := range r.waits {
		select {
		case <-w.done:
			if _, err := w.result(); err != nil {
				r.note(w.owner.index, err)
			}
			continue
		case <-r.ctx.Done():
		}
		r.giveUp(r.waits[i:])
		return context.Cause(r.ctx)
	}
	if r.ctx.Err() != nil {
		r.giveUp(nil)
		return context.Cause(r.ctx)
	}
	return r.verdict(commands)
}

// verdict is what went wrong first.
func (r *run) verdict(commands []Command) error {
	d := r.holder.device
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case r.failure == nil:
		return nil
	case d.err != nil:
		return d.err // whatever failed, failed because of that
	}
	return r.at(r.failedAt, &commands[r.failedAt], r.failure)
}

// giveUp leaves the device to itself. Nothing more is written to the program's memory.
func (r *run) giveUp(waits []*wait) {
	for _, w := range waits {
		r.holder.device.forget(w)
	}
	r.holder.lost = true
	r.holder.device.abandoned()
}

// post does something that may wait for room in the ring.
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

func (h *Holder) ask(r *run, op uint16, args encoder, o owner, to []byte) (w *wait, err error) {
	err = h.post(r, func() error {
		w, err = h.device.ask(op, args, o, to)
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

// stallLimit is how long a message may take to find room once nobody waits for it. Who
// gives up in the middle of one ends the session: it can't go on with half a message.
const stallLimit = 100 * time.Millisecond
