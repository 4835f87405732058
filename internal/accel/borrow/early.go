package borrow

import (
	"context"
	"sync/atomic"
	"time"
)

// earlyLimit is how long a session that no process has requested stays open: a program that uses a
// device does so as it starts.
const earlyLimit = 5 * time.Second

// early is a session of a lease that is opened while the program starts, so that the worker starts
// beside the program and not after it. The first process that requests a session of the lease
// receives it.
type early struct {
	claimed atomic.Bool
	opened  chan Link // capacity 1; closed when there is no session to receive
}

// openEarly opens a session of a lease. The session ends when ctx ends, or after limit, unless a
// process has received it.
func openEarly(ctx context.Context, lease Lease, limit time.Duration) (e *early, run func()) {
	e = &early{opened: make(chan Link, 1)}
	return e, func() {
		defer close(e.opened)
		link, err := lease.Dial(ctx)
		if err != nil {
			return // the process that requests a session gets the error of its own attempt
		}
		e.opened <- link
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		select {
		case link := <-e.opened:
			_ = link.Close() // no process has used it
		default:
		}
	}
}

// receive returns the session, nil if another process has received it, or it could not be opened or
// has ended.
func (e *early) receive(ctx context.Context) Link {
	if e == nil || e.claimed.Swap(true) {
		return nil
	}
	var link Link
	select {
	case link = <-e.opened:
	case <-ctx.Done():
	}
	if link == nil {
		return nil
	}
	select {
	case <-link.Done():
		_ = link.Close() // the process gets a session of its own
		return nil
	default:
		return link
	}
}
