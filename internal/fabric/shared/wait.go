package shared

import (
	"context"
	"time"
)

// maxSleep bounds the reader's sleep on the futex. Only a peer that tampers with the bells makes
// it necessary.
const maxSleep = 500 * time.Millisecond

// A waiter is a goroutine that waits, or may wait, for an event of the peer. The event sets ready.
// The end's mutex guards all fields.
type waiter struct {
	wake       chan struct{} // has capacity one
	ready      bool
	parked     bool
	seen       uint32 // of a blocked sender: the result of released before its last attempt
	prev, next *waiter
}

func newWaiter() waiter { return waiter{wake: make(chan struct{}, 1)} }

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// markReady makes w ready; the mutex is held. It wakes the reader, which may not be the
// goroutine that runs this.
func (e *laneEnd) markReady(w *waiter) {
	w.ready = true
	switch {
	case w.parked:
		w.signal()
		e.woke.Store(true)
	case w == e.readerWaiter && e.readerAsleep.Load():
		e.bell.RingAlways()
		e.ringParked()
	}
}

// A waiterList is a doubly linked list of waiters.
type waiterList struct{ first, last *waiter }

func (q *waiterList) push(w *waiter) {
	w.prev, w.next = q.last, nil
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last = w
}

func (q *waiterList) remove(w *waiter) {
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

// await waits until w is ready. An error is the reason that w will never be ready. If no goroutine
// reads the ring, the calling goroutine does.
func (e *laneEnd) await(ctx context.Context, w *waiter) error {
	e.mu.Lock()
	err := e.awaitLocked(ctx, w)
	e.mu.Unlock()
	return err
}

func (e *laneEnd) awaitLocked(ctx context.Context, w *waiter) error {
	defer e.promoteReader()
	for {
		switch {
		case w.ready:
			return nil
		case e.closeErr != nil:
			return e.closeErr
		case ctx.Err() != nil:
			return ctx.Err()
		case e.reading:
			e.park(ctx, w)
		default:
			e.readUntilReady(ctx, w)
		}
	}
}

// promoteReader makes a waiting goroutine the reader if there is no reader: the newest goroutine,
// which has the longest to wait, since replies come in order.
func (e *laneEnd) promoteReader() {
	if !e.reading && e.parked.last != nil {
		e.parked.last.signal()
	}
}

// park sleeps until w is signalled.
func (e *laneEnd) park(ctx context.Context, w *waiter) {
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

// readUntilReady reads the ring until w is ready or never will be.
func (e *laneEnd) readUntilReady(ctx context.Context, w *waiter) {
	e.reading, e.readerWaiter = true, w
	e.mu.Unlock()
	var stop func() bool
	e.quiet = false
	for {
		old := e.bell.Now()
		e.drain()
		e.mu.Lock()
		if e.drainAndClose(); w.ready || e.closeErr != nil || ctx.Err() != nil {
			break
		}
		if stop == nil && ctx.Done() != nil {
			e.mu.Unlock()
			stop = context.AfterFunc(ctx, e.wakeReader)
			continue
		}
		e.readerAsleep.Store(true)
		e.mu.Unlock()
		e.sleep(old)
		e.readerAsleep.Store(false)
	}
	e.reading, e.readerWaiter = false, nil
	if stop != nil {
		stop()
	}
}

// wakeReader wakes the reader for a local event.
func (e *laneEnd) wakeReader() {
	if e.region.tryRetain() {
		e.bell.RingAlways()
		e.region.release()
	}
	e.ringParked()
}
