package router

import (
	"context"
	"sync"
	"time"
)

// A late context ends at a deadline, and starts a timer for that only when somebody
// wants to wait: most calls are answered before anybody does.
type late struct {
	context.Context //nolint:containedctx // it is one
	deadline        time.Time

	mu     sync.Mutex
	waited context.Context //nolint:containedctx // the same with a timer, once somebody waits
	cancel context.CancelFunc
	over   bool
}

// until is a context that ends at a deadline. The caller ends it.
func until(ctx context.Context, deadline time.Time) *late {
	return &late{Context: ctx, deadline: deadline}
}

// begin makes l, which was reset, end at a deadline.
func (l *late) begin(ctx context.Context, deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Context, l.deadline, l.over = ctx, deadline, false
}

// reset makes ready for another call; false where somebody has waited, and may hold the
// context still.
func (l *late) reset() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waited != nil {
		return false
	}
	l.Context = context.Background()
	return true
}

// Deadline implements context.Context.
func (l *late) Deadline() (time.Time, bool) { return l.deadline, true }

// Done implements context.Context.
func (l *late) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waited == nil {
		l.waited, l.cancel = context.WithDeadline(l.Context, l.deadline)
		if l.over {
			l.cancel()
		}
	}
	return l.waited.Done()
}

// Err implements context.Context.
func (l *late) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.waited != nil:
		return l.waited.Err()
	case l.over:
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
func (l *late) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.cancel != nil {
		l.cancel()
	}
}
