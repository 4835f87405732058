package function

import (
	"context"
	"sync/atomic"
)

// Permits bound how many calls run and how many wait.
type permits struct {
	free    chan struct{}
	waiting atomic.Int64
	queue   int64
}

func newPermits(running, queue int) *permits {
	return &permits{free: make(chan struct{}, running), queue: int64(queue)}
}

// take returns false when the queue is full, and ctx's error when it ends first.
func (p *permits) take(ctx context.Context) (bool, error) {
	select {
	case p.free <- struct{}{}:
		return true, nil
	default:
	}
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > p.queue {
		return false, nil
	}
	select {
	case p.free <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (p *permits) give() { <-p.free }

// Live is how many calls run and how many wait for their turn, and how many instances
// wait for a call. It looks at none of them, as Idle does.
func (f *Function) Live() (running, waiting, idle int) {
	running, waiting = len(f.permits.free), int(f.permits.waiting.Load())
	f.mu.Lock()
	defer f.mu.Unlock()
	return running, waiting, len(f.idle)
}
