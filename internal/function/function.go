package function

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/outboard-run/outboard"
)

// ErrTrap is the error of a call that violated a rule of WebAssembly: unreachable code, an access
// out of bounds, a division by zero, a stack that is too deep.
var ErrTrap = errors.New("trap")

// FailedError is the error of a function that returned a status other than 0.
type FailedError struct {
	Status uint32 // its result, not 0
	Text   string // its response
}

func (e *FailedError) Error() string { return e.Text }

// Function is a deployed module.
type Function struct {
	version   *version
	op        string // of errors of calls
	admission *admission
	calls     sync.WaitGroup

	mu     sync.Mutex
	idle   []*slot
	closed bool
	counts Counts
}

func newFunction(v *version) *Function {
	return &Function{version: v, op: "call " + v.settings.Name, admission: newAdmission(v.settings.Limits.Concurrency, v.settings.Limits.Queue)}
}

// Name returns the name in the settings.
func (f *Function) Name() string { return f.version.settings.Name }

// Image returns how large a fresh instance's memory is, and how much of it is not zero.
func (f *Function) Image() (size, resident outboard.Bytes) {
	return outboard.Bytes(f.version.image.Size()), outboard.Bytes(f.version.image.Resident())
}

// Counts returns the function's totals so far.
func (f *Function) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// Call runs one request in an instance whose state is the image's. It waits for its
// turn unless the queue is full.
//
// Errors are of the kinds Busy (too many calls), Exhausted (a limit; the cause is a
// *LimitError), NotFound and Invalid (the entry), and Other (the cause is ErrTrap, a
// *FailedError, or an exit).
func (f *Function) Call(ctx context.Context, q Request) (Response, error) {
	if q.Entry == "" {
		q.Entry = DefaultEntry
	}
	if q.Depth > maxDepth {
		return Response{}, &outboard.Error{Op: f.op, Kind: outboard.Exhausted, Err: errDepth}
	}
	if err := f.beginCall(); err != nil {
		return Response{}, &outboard.Error{Op: f.op, Kind: outboard.SessionLost, Err: err}
	}
	defer f.calls.Done()
	if q.Arena != nil {
		if err := q.Arena.Retain(); err != nil {
			return Response{}, &outboard.Error{Op: f.op, Kind: outboard.Invalid, Err: err}
		}
		defer func() { _ = q.Arena.Close() }()
	}
	ok, err := f.admission.acquire(ctx)
	if err != nil {
		return Response{}, &outboard.Error{Op: f.op, Kind: outboard.Other, Err: fmt.Errorf("%w while it waited for its turn: %w", errCanceled, err)}
	}
	if !ok {
		f.countRefusal()
		return Response{}, &outboard.Error{Op: f.op, Kind: outboard.Busy, Err: f.version.settings.Limits.concurrencyError()}
	}
	defer f.admission.release()
	return f.serve(ctx, q)
}

func (f *Function) serve(ctx context.Context, q Request) (Response, error) {
	s, start, err := f.acquireSlot(q)
	if err != nil {
		return Response{}, &outboard.Error{Op: f.op, Kind: outboard.Exhausted, Err: err}
	}
	p, err := s.serve(ctx, q)
	if q.Arena != nil && q.Bound != nil && err == nil {
		err = q.Arena.Charge(q.Bound)
	}
	p.Cost.Start = start
	f.releaseSlot(s, p, err)
	if err != nil {
		return p, &outboard.Error{Op: f.op, Kind: kindOf(err), Err: explain(ctx, err)}
	}
	return p, nil
}

// serve runs one request. The slot has to be reset afterwards.
func (s *slot) serve(ctx context.Context, q Request) (Response, error) {
	c := &s.call
	entry, err := s.entry(q.Entry)
	if err == nil {
		err = c.bindRequest(ctx, q)
	}
	if err != nil {
		return Response{}, err
	}
	status, err := s.run(ctx, entry, s.limits)
	if left, ok := errors.AsType[*exit](err); ok && left.code == 0 {
		status, err = 0, nil // the program exited with success
	}
	if err == nil && status != 0 && len(entry.Definition().ResultTypes()) == 1 {
		err = &FailedError{status, c.errorText()}
	}
	if err == nil && c.flushed > 0 {
		err = c.flushResponse()
	}
	p := c.detachResponse()
	p.Imports = c.dropAll()
	p.Cost = Cost{
		Ran: time.Since(s.meter.begin), Memory: outboard.Bytes(s.memory.size), Fuel: s.meter.used(),
		Pointer: c.pointer, Copied: c.copied,
	}
	if err != nil {
		p.Body, p.Place = nil, nil
		c.freeAllocated()
		if _, ok := errors.AsType[*FailedError](err); !ok {
			s.entries = make(map[string]api.Function) // a stack that grew to its limit is not kept
		}
	}
	return p, err
}

// bindRequest sets the request that the call serves.
func (c *invocation) bindRequest(ctx context.Context, q Request) error {
	if q.Place != nil {
		if q.Arena == nil {
			return outboard.Errorf(outboard.Invalid, "", "the request has a place and no arena")
		}
		b, err := q.Arena.Slice(*q.Place)
		if err != nil {
			return outboard.Errorf(outboard.Invalid, "", "the request: %w", err)
		}
		q.Body = b
	}
	c.caller, c.request, c.requestAt, c.arena, c.readOnly = ctx, q.Body, q.Place, q.Arena, q.ReadOnly
	c.depth, c.about, c.resources, c.stream = q.Depth, q.Meta, q.Resources, q.Stream
	return c.slot.view.mapArena(q.Arena, q.ReadOnly)
}

func kindOf(err error) outboard.Kind {
	if _, ok := errors.AsType[*LimitError](err); ok {
		return outboard.Exhausted
	}
	return outboard.KindOf(err)
}

func explain(ctx context.Context, err error) error {
	var (
		limit  *LimitError
		failed *FailedError
		left   *exit
		known  *outboard.Error
	)
	switch {
	case errors.Is(err, errCanceled):
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	case errors.As(err, &limit), errors.As(err, &failed), errors.As(err, &known):
		return err
	case errors.As(err, &left):
		return fmt.Errorf("it ended with %w", left)
	}
	return fmt.Errorf("%w: %w", ErrTrap, err)
}

func (f *Function) beginCall() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.New("the function was closed: call the version that replaced it")
	}
	f.calls.Add(1)
	return nil
}

func (f *Function) countRefusal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Refused++
}

// acquireSlot returns an idle slot, if possible one whose window shows the call's arena, or creates
// one.
func (f *Function) acquireSlot(q Request) (*slot, Start, error) {
	f.mu.Lock()
	if len(f.idle) > 0 {
		s := f.pickIdle(q)
		f.counts.Reset++
		f.mu.Unlock()
		return s, Reset, nil
	}
	f.counts.Cloned++
	f.mu.Unlock()
	s, err := f.version.clone()
	return s, Clone, err
}

// pickIdle removes the best idle slot: the most recently used slot with the call's arena mapped,
// else the most recently used slot without a mapped arena, else the slot that was idle longest.
func (f *Function) pickIdle(q Request) *slot {
	best := 0
	for i, s := range slices.Backward(f.idle) {
		v := &s.view
		if v.arena == q.Arena && (q.Arena == nil || v.readOnly == q.ReadOnly) {
			best = i
			break
		}
		if v.arena == nil && f.idle[best].view.arena != nil {
			best = i
		}
	}
	s := f.idle[best]
	f.idle = slices.Delete(f.idle, best, best+1)
	return s
}

// clone makes an instance over the image.
func (v *version) clone() (*slot, error) {
	s, err := newSlot(v, v.image)
	if err != nil {
		return nil, err
	}
	for i, g := range s.globals {
		g.Set(v.globals[i])
	}
	return s, nil
}

// releaseSlot resets a slot and returns it to the idle slots. A slot that can't be reset is closed.
func (f *Function) releaseSlot(s *slot, p Response, failure error) {
	done, err := s.reset(f.version.runtime.resets, f.version.globals)
	if err != nil {
		s.close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.add(p.Cost, done, s.view.maps)
	f.counts.end(failure)
	s.view.maps = 0
	if err != nil {
		f.counts.Rebuilt++
		return
	}
	f.idle = append(f.idle, s)
}

// Idle returns how many slots are idle, and how much private memory they hold: pages that were
// written since the slots were made. Shared memory (the image and arenas) is not counted, nor is
// the engine's own.
func (f *Function) Idle() (slots int, memory outboard.Bytes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.idle {
		memory += outboard.Bytes(s.memory.space.Private())
	}
	return len(f.idle), memory
}

// Trim closes idle slots until at most limit are left, and returns how many it closed.
func (f *Function) Trim(limit int) int {
	f.mu.Lock()
	surplus := f.idle[min(limit, len(f.idle)):]
	f.idle = f.idle[: len(f.idle)-len(surplus) : len(f.idle)-len(surplus)]
	f.mu.Unlock()
	for _, s := range surplus {
		s.close()
	}
	return len(surplus)
}

// Close refuses new calls, waits for running ones and frees all resources.
func (f *Function) Close() error {
	f.mu.Lock()
	again := f.closed
	f.closed = true
	f.mu.Unlock()
	f.calls.Wait()
	if again {
		return nil
	}
	f.Trim(0)
	f.version.runtime.remove(f)
	f.version.close()
	return nil
}
