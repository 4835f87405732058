package remote

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of a call that is served. It allocates nothing until
// Done is called.
type callContext struct {
	deadline time.Time

	mu     sync.Mutex
	done   chan struct{}
	err    error
	timer  *time.Timer
	afters map[*func()]bool
}

// Deadline implements context.Context.
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Value implements context.Context. A call has no values.
func (c *callContext) Value(any) any { return nil }

// Err implements context.Context.
func (c *callContext) Err() error {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err == nil && !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		c.end(context.DeadlineExceeded)
		return context.DeadlineExceeded
	}
	return err
}

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arm()
	return c.done
}

// arm creates done, and the timer that closes it. Locks: c.mu is held.
func (c *callContext) arm() {
	if c.done != nil {
		return
	}
	c.done = make(chan struct{})
	switch {
	case c.err != nil:
		close(c.done)
	case !c.deadline.IsZero():
		c.timer = time.AfterFunc(time.Until(c.deadline), func() { c.end(context.DeadlineExceeded) })
	}
}

// AfterFunc lets package context derive contexts without a goroutine.
func (c *callContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arm()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	if c.afters == nil {
		c.afters = make(map[*func()]bool)
	}
	key := &f
	c.afters[key] = true
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		waits := c.afters[key]
		delete(c.afters, key)
		return waits
	}
}

// end ends the context, for the reason err, unless it has ended.
func (c *callContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.done != nil {
		close(c.done)
	}
	for f := range c.afters {
		go (*f)()
	}
	c.afters = nil
}
