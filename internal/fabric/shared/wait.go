package shared

import (
	"context"
	"time"
)

// longest is how long a reader sleeps before it looks by itself. Only a peer that
// tampers with the bells needs it.
const longest = 500 * time.Millisecond

// A waiter is a goroutine that waits for something from the peer, or could. What it
// waits for sets ready; all fields are under the end's mutex.
type waiter struct {
	wake       chan struct{} // has room for one
	ready      bool
	parked     bool
	prev, next *waiter
}

func newWaiter() waiter { return waiter{wake: make(chan struct{}, 1)} }

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// satisfy makes w ready; the mutex is held. A reader that sleeps is woken: who
// makes it ready is not always itself.
func (e *end) satisfy(w *waiter) {
	w.ready = true
	switch {
	case w.parked:
		w.signal()
	case w == e.leader && e.asleep.Load():
		e.bell.Shout()
	}
}

// A queue is a list of waiters.
type queue struct{ first, last *waiter }

func (q *queue) push(w *waiter) {
	w.prev, w.next = q.last, nil
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last = w
}

func (q *queue) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.prev, w.next = nil, nil
}

// await returns nil when w is ready, else why it never will be. When nobody reads
// the ring, the caller does.
func (e *end) await(ctx context.Context, w *waiter) error {
	e.mu.Lock()
	err := e.awaitLocked(ctx, w)
	e.mu.Unlock()
	return err
}

func (e *end) awaitLocked(ctx context.Context, w *waiter) error {
	defer e.promote()
	for {
		switch {
		case w.ready:
			return nil
		case e.dead != nil:
			return e.dead
		case ctx.Err() != nil:
			return ctx.Err()
		case e.reading:
			e.park(ctx, w)
		default:
			e.lead(ctx, w)
		}
	}
}

// promote makes one of those who wait the reader, when there is none. The newest
// is asked: replies come in order, so it stays longest.
func (e *end) promote() {
	if !e.reading && e.parked.last != nil {
		e.parked.last.signal()
	}
}

// park sleeps until somebody signals w.
func (e *end) park(ctx context.Context, w *waiter) {
	w.parked = true
	e.parked.push(w)
	e.mu.Unlock()
	if done := ctx.Done(); done == nil {
		<-w.wake
	} else {
		select {
		case <-w.wake:
		case <-done:
		}
	}
	e.mu.Lock()
	e.parked.remove(w)
	w.parked = false
}

// lead reads the ring until w is ready or can't be any more.
func (e *end) lead(ctx context.Context, w *waiter) {
	e.reading, e.leader = true, w
	e.mu.Unlock()
	var stop func() bool
	for {
		old := e.bell.Now()
		e.drain()
		e.mu.Lock()
		if e.mourn(); w.ready || e.dead != nil || ctx.Err() != nil {
			break
		}
		if stop == nil && ctx.Done() != nil {
			e.mu.Unlock()
			stop = context.AfterFunc(ctx, e.kick)
			continue
		}
		e.asleep.Store(true)
		e.mu.Unlock()
		e.bell.Sleep(&e.waits, old, e.conn.options.patience)
		e.asleep.Store(false)
	}
	e.reading, e.leader = false, nil
	if stop != nil {
		stop()
	}
}

// kick wakes the reader for a reason of our own.
func (e *end) kick() {
	if e.region.tryRetain() {
		e.bell.Shout()
		e.region.release()
	}
}
