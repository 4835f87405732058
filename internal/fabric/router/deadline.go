package router

import (
	"context"
	"sync"
	"time"
)

// A deadlineContext ends at a deadline. It starts a timer only when Done is called: most calls
// are answered before anything waits for their context.
type deadlineContext struct {
	context.Context //nolint:containedctx // it is one
	deadline        time.Time

	mu     sync.Mutex
	timed  context.Context //nolint:containedctx // the same with a timer, once Done was called
	cancel context.CancelFunc
	ended  bool
}

// newDeadlineContext returns a context that ends at a deadline. The caller ends it.
func newDeadlineContext(ctx context.Context, deadline time.Time) *deadlineContext {
	return &deadlineContext{Context: ctx, deadline: deadline}
}

// restart reuses a context that was reset, with a new deadline.
func (l *deadlineContext) restart(ctx context.Context, deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Context, l.deadline, l.ended = ctx, deadline, false
}

// reset prepares the context for another call. It returns false if a waiter may still hold it.
func (l *deadlineContext) reset() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed != nil {
		return false
	}
	l.Context = context.Background()
	return true
}

// Deadline implements context.Context.
func (l *deadlineContext) Deadline() (time.Time, bool) { return l.deadline, true }

// Done implements context.Context.
func (l *deadlineContext) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil {
		l.timed, l.cancel = context.WithDeadline(l.Context, l.deadline)
		if l.ended {
			l.cancel()
		}
	}
	return l.timed.Done()
}

// Err implements context.Context.
func (l *deadlineContext) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.timed != nil:
		return l.timed.Err()
	case l.ended:
		return context.Canceled
	}
	if err := l.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(l.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// end cancels the context.
func (l *deadlineContext) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.cancel != nil {
		l.cancel()
	}
}
