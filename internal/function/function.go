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

// ErrTrap is a call that did what WebAssembly forbids: unreachable code, an access
// out of bounds, a division by zero, a stack that is too deep.
var ErrTrap = errors.New("trap")

// A FailedError is a function that says itself that it failed.
type FailedError struct {
	Status uint32 // its result, not 0
	Text   string // its response
}

func (e *FailedError) Error() string { return e.Text }

// A Function is a deployed module.
type Function struct {
	version *version
	op      string // of errors of calls
	permits *permits
	calls   sync.WaitGroup

	mu     sync.Mutex
	idle   []*slot
	closed bool
	counts Counts
}

func newFunction(v *version) *Function {
	return &Function{version: v, op: "call " + v.settings.Name, permits: newPermits(v.settings.Limits.Concurrency, v.settings.Limits.Queue)}
}

// Name is the name in the settings.
func (f *Function) Name() string { return f.version.settings.Name }

// Image says how large a fresh instance's memory is, and how much of it is not zero.
func (f *Function) Image() (size, resident outboard.Bytes) {
	return outboard.Bytes(f.version.image.Size()), outboard.Bytes(f.version.image.Resident())
}

// Counts returns what the function did so far.
func (f *Function) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// Call runs one request in an instance whose state is the image's. It waits for its
// turn if the queue has room.
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
	if err := f.enter(); err != nil {
		return Response{}, &outboard.Error{Op: f.op, Kind: outboard.SessionLost, Err: err}
	}
	defer f.calls.Done()
	if q.Arena != nil {
		if err := q.Arena.Hold(); err != nil {
			return Response{}, &outboard.Error{Op: f.op, Kind: outboard.Invalid, Err: err}
		}
		defer func() { _ = q.Arena.Close() }()
	}
	ok, err := f.permits.take(ctx)
	if err != nil {
		return Response{}, &outboard.Error{Op: f.op, Kind: outboard.Other, Err: fmt.Errorf("%w while it waited for its turn: %w", errCanceled, err)}
	}
	if !ok {
		f.refuse()
		return Response{}, &outboard.Error{Op: f.op, Kind: outboard.Busy, Err: f.version.settings.Limits.concurrencyError()}
	}
	defer f.permits.give()
	return f.serve(ctx, q)
}

func (f *Function) serve(ctx context.Context, q Request) (Response, error) {
	s, start, err := f.take(q)
	if err != nil {
		return Response{}, &outboard.Error{Op: f.op, Kind: outboard.Exhausted, Err: err}
	}
	p, err := s.serve(ctx, q)
	p.Cost.Start = start
	f.give(s, p, err)
	if err != nil {
		return p, &outboard.Error{Op: f.op, Kind: kindOf(err), Err: explain(ctx, err)}
	}
	return p, nil
}

// serve runs one request and leaves the slot as it then is.
func (s *slot) serve(ctx context.Context, q Request) (Response, error) {
	entry, err := s.entry(q.Entry)
	if err == nil {
		err = s.accept(ctx, q)
	}
	if err != nil {
		return Response{}, err
	}
	status, err := s.run(ctx, entry, s.limits)
	if err == nil && status != 0 && len(entry.Definition().ResultTypes()) == 1 {
		err = &FailedError{status, s.text()}
	}
	p := s.answer()
	p.Imports = s.dropAll()
	p.Cost = Cost{
		Ran: time.Since(s.meter.begin), Memory: outboard.Bytes(s.memory.size), Fuel: s.meter.used(),
		Pointer: s.pointer, Copied: s.copied,
	}
	if err != nil {
		p.Body, p.Place = nil, nil
		s.forget()
		if _, ok := errors.AsType[*FailedError](err); !ok {
			s.entries = make(map[string]api.Function) // a stack that grew to its limit is not kept
		}
	}
	return p, err
}

// accept notes what a call brings.
func (s *slot) accept(ctx context.Context, q Request) error {
	if q.Place != nil {
		if q.Arena == nil {
			return outboard.Errorf(outboard.Invalid, "", "the request has a place and no arena")
		}
		b, err := q.Arena.At(*q.Place)
		if err != nil {
			return outboard.Errorf(outboard.Invalid, "", "the request: %w", err)
		}
		q.Body = b
	}
	s.caller, s.request, s.requestAt, s.arena, s.readOnly = ctx, q.Body, q.Place, q.Arena, q.ReadOnly
	s.depth, s.about, s.resources = q.Depth, q.Meta, q.Resources
	return s.attach(q.Arena, q.ReadOnly)
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

func (f *Function) enter() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.New("the function was closed: call the version that replaced it")
	}
	f.calls.Add(1)
	return nil
}

func (f *Function) refuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Refused++
}

// take returns an idle slot, one that shows what the call needs if there is one, or makes
// one.
func (f *Function) take(q Request) (*slot, Start, error) {
	f.mu.Lock()
	if len(f.idle) > 0 {
		s := f.pick(q)
		f.counts.Reset++
		f.mu.Unlock()
		return s, Reset, nil
	}
	f.counts.Cloned++
	f.mu.Unlock()
	s, err := f.version.clone()
	return s, Clone, err
}

// pick takes the best of the idle slots: the last used one that shows the arena, else the
// last used one that shows none, else the one that was idle longest.
func (f *Function) pick(q Request) *slot {
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

// give resets a slot and keeps it. One that can't be reset is closed: the next call
// makes another.
func (f *Function) give(s *slot, p Response, failure error) {
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

// Idle says how many slots wait for calls, and how much memory they keep to themselves:
// pages that were written since they were made. What they share with others, the image
// and arenas, is not in it, nor the engine's own.
func (f *Function) Idle() (slots int, memory outboard.Bytes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.idle {
		memory += outboard.Bytes(s.memory.space.Private())
	}
	return len(f.idle), memory
}

// Trim closes idle slots until at most keep are left, and returns how many it closed.
func (f *Function) Trim(keep int) int {
	f.mu.Lock()
	gone := f.idle[min(keep, len(f.idle)):]
	f.idle = f.idle[: len(f.idle)-len(gone) : len(f.idle)-len(gone)]
	f.mu.Unlock()
	for _, s := range gone {
		s.close()
	}
	return len(gone)
}

// Close refuses new calls, waits for those under way and gives everything back.
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
