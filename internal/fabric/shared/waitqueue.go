package shared

import (
	"context"
	"errors"
	"slices"

	"github.com/outboard-run/outboard/fabric/call"
)

// The resources that senders may have to wait for.
const (
	ringSlot = iota
	heapSpace
	numResources
)

// errWouldBlock is returned to senders that must not wait.
var errWouldBlock = errors.New("no room")

// A waitQueue has the senders that wait for one resource, by priority.
type waitQueue [3][]*waiter

func (r *waitQueue) first() *waiter {
	for p := len(r) - 1; p >= 0; p-- {
		if len(r[p]) > 0 {
			return r[p][0]
		}
	}
	return nil
}

// hasAtLeast reports whether a sender of priority p or higher waits.
func (r *waitQueue) hasAtLeast(p int) bool {
	for ; p < len(r); p++ {
		if len(r[p]) > 0 {
			return true
		}
	}
	return false
}

func rank(p call.Priority) int { return int(min(max(p, call.Low), call.High)) + 1 }

// acquire calls try until it succeeds, in the sender's turn. A nil ctx does not wait.
func (e *laneEnd) acquire(ctx context.Context, which int, p call.Priority, try func() (bool, error)) error {
	if e.blockedSenders.Load() == 0 || !e.outranked(which, rank(p)) {
		if ok, err := try(); err != nil {
			return e.closeOnViolation(err)
		} else if ok {
			return nil
		}
	}
	if ctx == nil {
		return errWouldBlock
	}
	return e.closeOnViolation(e.waitTurn(ctx, which, rank(p), try))
}

// closeOnViolation ends the connection if err reports that the peer broke the protocol.
func (e *laneEnd) closeOnViolation(err error) error {
	if err == nil || !isViolation(err) {
		return err
	}
	e.conn.closeOnViolation(err)
	return e.conn.reason()
}

// maxOvertakes is the number of sends that may overtake a waiting sender of their own priority.
// Without any overtaking, senders that find the ring full once would pass it from one to the other
// with a goroutine switch for each message (a lock convoy).
const maxOvertakes = 32

// outranked reports whether a sender of priority p has to queue behind the waiting senders.
func (e *laneEnd) outranked(which, p int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.waiting[which].hasAtLeast(p):
		return false
	case e.waiting[which].hasAtLeast(p + 1), e.overtakes[which] >= maxOvertakes:
		return true
	}
	e.overtakes[which]++
	return false
}

// waitTurn queues the sender, and calls try in its turn until it succeeds.
func (e *laneEnd) waitTurn(ctx context.Context, which, p int, try func() (bool, error)) error {
	w := newWaiter()
	e.mu.Lock()
	defer e.mu.Unlock()
	queue := &e.waiting[which][p]
	*queue = append(*queue, &w)
	e.blockedSenders.Add(1)
	defer func() {
		*queue = slices.DeleteFunc(*queue, func(o *waiter) bool { return o == &w })
		e.blockedSenders.Add(-1)
		e.wakeSendersLocked()
	}()
	for {
		w.ready = false
		if e.waiting[which].first() == &w {
			w.seen = released(e, which)
			e.mu.Unlock()
			ok, err := try()
			e.mu.Lock()
			if ok || err != nil {
				e.overtakes[which] = 0
				return err
			}
		}
		if err := e.awaitLocked(ctx, &w); err != nil {
			return err
		}
	}
}

// released returns the count of units of a resource that the peer of e has released.
func released(e *laneEnd, which int) uint32 {
	if which == ringSlot {
		return e.out.words.taken.Load()
	}
	return e.heap.words.returned.Load()
}

// wakeSenders lets the first sender of each queue try again.
func (e *laneEnd) wakeSenders() {
	e.mu.Lock()
	e.wakeSendersLocked()
	e.mu.Unlock()
}

// wakeReleased lets the first sender of each queue try again if the peer has released units since
// the sender's last attempt. The reader, which calls it, may be the first sender itself: it would
// never sleep if each attempt led to the next.
func (e *laneEnd) wakeReleased() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.waiting {
		if w := e.waiting[i].first(); w != nil && w.seen != released(e, i) {
			e.markReady(w)
		}
	}
}

func (e *laneEnd) wakeSendersLocked() {
	for i := range e.waiting {
		if w := e.waiting[i].first(); w != nil {
			e.markReady(w)
		}
	}
}
