package shared

import (
	"context"
	"sync"
	"time"
)

// withDeadline is context.WithDeadline for a handler that mostly looks at the time
// at most: the timer is made when somebody asks for Done.
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

	mu     sync.Mutex
	timed  context.Context //nolint:containedctx // as above
	cancel context.CancelFunc
	over   bool
}

func (c *deadlineContext) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *deadlineContext) real() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.Context, c.deadline)
		if c.over {
			c.cancel()
		}
	}
	return c.timed
}

// Deadline implements context.Context.
func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *deadlineContext) Done() <-chan struct{} { return c.real().Done() }

// Err implements context.Context.
func (c *deadlineContext) Err() error { return c.real().Err() }
