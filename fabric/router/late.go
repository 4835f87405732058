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

// until returns a context that ends at a deadline. The caller cancels it.
func until(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	l := &late{Context: ctx, deadline: deadline}
	return l, l.end
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
