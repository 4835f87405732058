package engine

import (
	"context"
	"sync"
	"time"
)

// runSlot is an execution's slot among the running executions.
type runSlot struct {
	slots chan struct{} // the semaphore of all executions
	held  bool          // owned by the execution's goroutine
	// expedited is closed when the execution must not wait for a slot.
	expedited    chan struct{}
	expediteOnce sync.Once
}

// acquire waits for a slot until the deadline, if there is one, is over, or until the execution is
// expedited. It reports false when ctx has ended.
func (s *runSlot) acquire(ctx context.Context, expired <-chan time.Time) bool {
	if s.held {
		return true
	}
	select {
	case s.slots <- struct{}{}:
		s.held = true
		return true
	case <-s.expedited:
		return true
	case <-expired:
		return true
	case <-ctx.Done():
		return false
	}
}

// release frees the slot if it is held.
func (s *runSlot) release() {
	if s.held {
		s.held = false
		<-s.slots
	}
}

// expedite lets the execution continue without a slot. It may be called by any goroutine.
func (s *runSlot) expedite() { s.expediteOnce.Do(func() { close(s.expedited) }) }
