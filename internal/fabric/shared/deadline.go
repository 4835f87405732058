package shared

import (
	"context"
	"sync"
	"time"
)

// withDeadline is context.WithDeadline without a timer until Done is called: most handlers only
// read the time.
func withDeadline(parent context.Context, deadline time.Time) (context.Context, func()) {
	if deadline.IsZero() {
		return parent, func() {}
	}
	c := &deadlineContext{Context: parent, deadline: deadline}
	return c, c.finish
}

type deadlineContext struct {
	context.Context //nolint:containedctx // this is one
	deadline        time.Time

	mu       sync.Mutex
	timed    context.Context //nolint:containedctx // as above
	cancel   context.CancelFunc
	finished bool
}

func (c *deadlineContext) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished = true
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *deadlineContext) timedContext() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.Context, c.deadline)
		if c.finished {
			c.cancel()
		}
	}
	return c.timed
}

// Deadline implements context.Context.
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *deadlineContext) Done() <-chan struct{} { return c.timedContext().Done() }

// Err implements context.Context.
func (c *deadlineContext) Err() error { return c.timedContext().Err() }
