package function

import (
	"context"
	"sync/atomic"
)

// admission is the admission control of a function: it bounds its running and its waiting calls.
type admission struct {
	running chan struct{}
	waiting atomic.Int64
	queue   int64
}

func newAdmission(running, queue int) *admission {
	return &admission{running: make(chan struct{}, running), queue: int64(queue)}
}

// acquire waits for a permit. It returns false when the queue is full, and the cause of ctx when
// ctx ends first.
func (p *admission) acquire(ctx context.Context) (bool, error) {
	select {
	case p.running <- struct{}{}:
		return true, nil
	default:
	}
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > p.queue {
		return false, nil
	}
	select {
	case p.running <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (p *admission) release() { <-p.running }

// Live returns how many calls run, how many wait for their turn, and how many instances are idle.
// Unlike Idle it does not examine the instances.
func (f *Function) Live() (running, waiting, idle int) {
	running, waiting = len(f.admission.running), int(f.admission.waiting.Load())
	f.mu.Lock()
	defer f.mu.Unlock()
	return running, waiting, len(f.idle)
}
