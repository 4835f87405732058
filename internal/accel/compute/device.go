package compute

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/shm"
)

// Protocol is the version of opencl.api that this client implements.
const Protocol = 1

// The id of the device that every session has, and the first id that a client may assign.
const (
	deviceID = 2
	firstID  = 0x100
)

// Options configure a Device.
type Options struct {
	// Ring is the client's end of the ring. Its owner unmaps it, after Close.
	Ring *shm.Ring
	// Shared allows several holders. A single holder is served a little faster without it.
	Shared bool
	// ExplainError returns a more detailed error than that with which the ring reports the session's end, if
	// the caller has more information. It may be nil.
	ExplainError func(error) error
}

// Facts are the properties of the device that the worker reports.
type Facts struct {
	// Memory bounds the session's allocations.
	Memory outboard.Bytes
	// WorkGroup is the size of the largest work group, LocalMemory the local memory of a work
	// group, Buffer the size of the largest buffer.
	WorkGroup   int
	LocalMemory outboard.Bytes
	Buffer      outboard.Bytes
}

// Device is a session on a leased device.
type Device struct {
	opts    Options
	flags   uint16
	out     *session.Writer
	in      *session.Reader
	facts   Facts
	context uint64
	library library
	ready   chan struct{} // closed when the snapshot has arrived
	done    chan struct{} // closed when the session has ended

	sending sync.Mutex
	serial  uint64 // of the last message
	body    []byte // of the message that is being sent

	mu      sync.Mutex
	ids     uint64
	calls   uint32
	waits   map[uint32]*wait
	owners  map[uint64]owner // of messages that may fail, by serial
	runs    map[*run]bool    // runs that capture output
	stuck   bool
	stalled bool
	closed  bool
	started bool
	err     error
}

// owner is the command that a message belongs to.
type owner struct {
	run   *run
	index int
}

// Open begins a session: it waits until the worker has sent the device's facts.
func Open(ctx context.Context, opts Options) (*Device, error) {
	d := &Device{
		opts: opts, out: session.NewWriter(opts.Ring, opts.Ring.Area()), ids: firstID - 1,
		ready: make(chan struct{}), done: make(chan struct{}), waits: map[uint32]*wait{}, owners: map[uint64]owner{}, runs: map[*run]bool{},
	}
	if !opts.Shared {
		d.flags = session.Alone
	}
	var err error
	if d.in, err = session.NewReader(opts.Ring, opts.Ring.Area()); err != nil {
		return nil, err
	}
	go d.read()
	if err := d.begin(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Device) begin(ctx context.Context) error {
	d.context = d.newID()
	err := d.send(opHello, &argsHello{Protocol: Protocol, Pid: uint32(os.Getpid())}, owner{})
	if err == nil {
		err = d.send(opClCreateContext, &argsClCreateContext{Devices: []uint64{deviceID}, Result: d.context}, owner{})
	}
	if err != nil {
		return err
	}
	select {
	case <-d.ready:
		return nil
	case <-d.done:
		return d.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Facts returns the facts that the worker sent.
func (d *Device) Facts() Facts { return d.facts }

// Done returns a channel that is closed when the session has ended.
func (d *Device) Done() <-chan struct{} { return d.done }

// Err returns why the session ended; nil while it is live.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Stuck reports whether a caller gave up while the device worked for it, possibly for ever. Such a
// session should get no new holders. It also returns true for an ended session.
func (d *Device) Stuck() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stuck || d.closed || d.err != nil {
		return true
	}
	_, ended := d.opts.Ring.Closed() // the reader may not have seen that yet
	return ended
}

// Close ends the session. Callers that wait for the device get an error.
func (d *Device) Close() error {
	d.mu.Lock()
	again := d.closed
	d.closed = true
	d.mu.Unlock()
	if !again {
		_ = d.opts.Ring.Close(shm.Done)
	}
	<-d.done
	return d.in.Close()
}

// newID returns an unused id for an object.
func (d *Device) newID() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids++
	return d.ids
}

// encoder is implemented by all generated arguments.
type encoder interface{ encode(buf []byte) []byte }

// send sends a call without waiting for its reply. A failure is reported to its owner.
func (d *Device) send(op uint16, args encoder, o owner, bulk ...[]byte) error {
	return d.post(session.Header{Op: op, Flags: d.flags}, args, o, bulk...)
}

// request sends a call and returns the wait for its reply. The reply's bulk is copied to to.
func (d *Device) request(op uint16, args encoder, o owner, to []byte) (*wait, error) {
	w := &wait{op: op, to: to, done: make(chan struct{}), owner: o}
	d.mu.Lock()
	d.calls++
	if d.calls == 0 {
		d.calls++
	}
	w.call = d.calls
	if d.err != nil {
		d.mu.Unlock()
		return nil, d.err
	}
	d.waits[w.call] = w
	d.mu.Unlock()
	err := d.post(session.Header{Op: op, Flags: d.flags | session.WantReply, Call: w.call}, args, owner{})
	if err != nil {
		d.abandonWait(w)
		return nil, err
	}
	return w, nil
}

func (d *Device) post(h session.Header, args encoder, o owner, bulk ...[]byte) error {
	d.sending.Lock()
	defer d.sending.Unlock()
	d.body = args.encode(d.body)
	d.serial++
	if o.run != nil {
		d.mu.Lock()
		d.owners[d.serial] = o
		d.mu.Unlock()
		o.run.serials = append(o.run.serials, d.serial)
	}
	err := d.out.Send(h, d.body, bulk...)
	if cap(d.body) > largestKept {
		d.body = nil
	}
	if err != nil {
		return d.sessionError(err)
	}
	return nil
}

// largestKept bounds the memory that is kept for bodies: only sources need more.
const largestKept = 64 << 10

// abandonWait ends a wait whose caller has given up.
func (d *Device) abandonWait(w *wait) {
	d.removeWait(w.call)
	w.abandon()
}

// clearOwners discards failures that the worker may still report for the given messages.
func (d *Device) clearOwners(serials []uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range serials {
		delete(d.owners, s)
	}
}

// markStuck records that a caller gave up while the device worked for it.
func (d *Device) markStuck() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck = true
}

// sessionError returns the error for callers after an error of the ring.
func (d *Device) sessionError(err error) error {
	d.mu.Lock()
	stalled := d.stalled
	d.mu.Unlock()
	if stalled {
		return errStalled
	}
	if errors.Is(err, io.EOF) {
		err = outboard.Errorf(outboard.SessionLost, "session", "it was closed")
	}
	if d.opts.ExplainError != nil {
		return d.opts.ExplainError(err)
	}
	return err
}

// read receives messages until an error, which it delivers to all waiting callers.
func (d *Device) read() {
	err := d.receive()
	for err == nil {
		err = d.receive()
	}
	_ = d.opts.Ring.Fail(err)
	err = d.sessionError(err)
	d.mu.Lock()
	d.err = err
	waits := d.waits
	d.waits = map[uint32]*wait{}
	d.mu.Unlock()
	for _, w := range waits {
		w.end(0, nil, err)
	}
	close(d.done)
}

// receive receives and handles one message.
func (d *Device) receive() error {
	h, body, err := d.in.Next()
	if err != nil {
		return err
	}
	if h.Flags&session.IsReply != 0 {
		return d.deliverReply(h, body)
	}
	switch h.Op {
	case opSnapshot:
		return d.readSnapshot(body)
	case opFailed:
		return d.recordFailure(body)
	case opOutput:
		return d.capture(body)
	}
	return nil // a notice that this client does not need
}

func (d *Device) deliverReply(h session.Header, body []byte) error {
	d.mu.Lock()
	w := d.waits[h.Call]
	d.mu.Unlock()
	if w == nil {
		return nil // its caller has given up
	}
	var err error
	if h.Op != w.op {
		err = outboard.Errorf(outboard.Protocol, "session", "the reply to call %d has op %#x, want %#x", h.Call, h.Op, w.op)
	}
	body = bytes.Clone(body)
	if err == nil {
		err = w.fill(d.in)
	}
	if err != nil || h.Flags&session.More == 0 {
		d.removeWait(h.Call)
		w.end(h.Status, body, err)
	}
	return err
}

func (d *Device) removeWait(call uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waits, call)
}

func (d *Device) readSnapshot(body []byte) error {
	var s argsSnapshot
	if err := s.decode(body); err != nil {
		return outboard.Errorf(outboard.Protocol, "session", "snapshot: %w", err)
	}
	if d.started {
		return outboard.Errorf(outboard.Protocol, "session", "a second snapshot")
	}
	d.started = true
	d.facts.Memory = outboard.Bytes(s.MemoryLimit)
	err := eachFact(s.Facts, func(f fact) {
		switch {
		case f.op != opClGetDeviceInfo:
		case f.param == deviceMaxWorkGroup:
			d.facts.WorkGroup = int(min(f.uint64Value(), 1<<31))
		case f.param == deviceLocalMemory:
			d.facts.LocalMemory = outboard.Bytes(f.uint64Value())
		case f.param == deviceMaxBuffer:
			d.facts.Buffer = outboard.Bytes(f.uint64Value())
		}
	})
	close(d.ready)
	return err
}

func (d *Device) recordFailure(body []byte) error {
	var f argsFailed
	if err := f.decode(body); err != nil {
		return outboard.Errorf(outboard.Protocol, "session", "failure: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.owners[f.Serial]; o.run != nil {
		o.run.recordErrorLocked(o.index, StatusError(f.Status))
	}
	return nil
}

var errStalled = outboard.Errorf(outboard.SessionLost, "session", "a call ended while the device's node took nothing more")

// failStalled ends a session whose worker does not read. After Close it does nothing: the ring may
// be unmapped.
func (d *Device) failStalled() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.stalled = true
		_ = d.opts.Ring.Fail(errStalled)
	}
}

// startCapture begins to collect kernels' output for a run. Text that the worker sent before, and
// that is still in the ring, is not part of it. On a closed Device nothing is captured.
func (d *Device) startCapture(r *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	r.start = d.opts.Ring.Received()
	d.runs[r] = true
}

// stopCapture returns the output since startCapture.
func (d *Device) stopCapture(r *run) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, r)
	return r.printed
}

// capture adds kernels' output to every run that is capturing: the worker does not report which
// kernel printed it.
func (d *Device) capture(body []byte) error {
	var o argsOutput
	if err := o.decode(body); err != nil {
		return outboard.Errorf(outboard.Protocol, "session", "output: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := range d.runs {
		if d.in.Position() < r.start {
			continue // sent before the run began
		}
		r.printed = append(r.printed, o.Text[:min(len(o.Text), MaxPrinted-len(r.printed))]...)
	}
	return nil
}
