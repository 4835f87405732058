package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
)

// A callWatch cancels the one call in progress at its deadline, or once its caller has abandoned it.
// It checks at an interval while there are calls: a short call then sets no timer and wakes no other
// goroutine.
type callWatch struct {
	life context.Context //nolint:containedctx // of all calls
	// abandoned is the number of the last call that its caller has abandoned, in shared memory.
	abandoned *atomic.Uint64

	mu       sync.Mutex
	call     uint64
	deadline time.Time
	cancel   context.CancelCauseFunc // nil: no call is in progress
	recent   bool                    // a call has begun since the last check
	timer    *time.Timer             // nil: there was no call yet
	armed    bool
	stopped  bool
}

// watchInterval is the interval of the checks.
const watchInterval = 5 * time.Millisecond

var errCallDeadline = outboard.Errorf(outboard.Exhausted, "infer", "the model did not answer in time")

// begin returns the context of a call. The caller calls end after the call.
func (w *callWatch) begin(call uint64, timeout time.Duration) context.Context {
	ctx, cancel := context.WithCancelCause(w.life)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.call, w.deadline, w.cancel, w.recent = call, time.Now().Add(timeout), cancel, true
	if w.armed || w.stopped {
		return ctx
	}
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(watchInterval, w.check)
	} else {
		w.timer.Reset(watchInterval)
	}
	return ctx
}

func (w *callWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel(nil)
	w.cancel = nil
}

// check cancels the call in progress if it has to end.
func (w *callWatch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.cancel == nil && !w.recent {
		w.armed = false
		return
	}
	switch {
	case w.cancel == nil:
	case w.abandoned.Load() == w.call:
		w.cancel(context.Canceled)
	case !time.Now().Before(w.deadline):
		w.cancel(errCallDeadline)
	}
	w.recent = false
	w.timer.Reset(watchInterval)
}

// stop ends the checks. The shared memory may be unmapped afterwards.
func (w *callWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// cancelCall cancels the call in progress.
func (w *callWatch) cancelCall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel(context.Canceled)
	}
}
