package shared

import (
	"context"
	"errors"
	"slices"

	"github.com/outboard-run/outboard/fabric/call"
)

// What senders may have to wait for.
const (
	ringRoom = iota
	heapRoom
	callRoom
	rooms
)

// errCrowded says that there is no room now, to those who can't wait.
var errCrowded = errors.New("no room")

// A room has those who wait for it, by priority.
type room [3][]*waiter

func (r *room) first() *waiter {
	for p := len(r) - 1; p >= 0; p-- {
		if len(r[p]) > 0 {
			return r[p][0]
		}
	}
	return nil
}

// ahead says whether somebody waits whom one of priority p must not overtake.
func (r *room) ahead(p int) bool {
	for ; p < len(r); p++ {
		if len(r[p]) > 0 {
			return true
		}
	}
	return false
}

func rank(p call.Priority) int { return int(min(max(p, call.Low), call.High)) + 1 }

// get calls try until it succeeds, each in its turn. A nil ctx does not wait.
func (e *end) get(ctx context.Context, which int, p call.Priority, try func() (bool, error)) error {
	if e.hungry.Load() == 0 || !e.ahead(which, rank(p)) {
		if ok, err := try(); err != nil {
			return e.judge(err)
		} else if ok {
			return nil
		}
	}
	if ctx == nil {
		return errCrowded
	}
	return e.judge(e.line(ctx, which, rank(p), try))
}

// judge ends the connection when the peer broke a rule.
func (e *end) judge(err error) error {
	if err == nil || !isBreach(err) {
		return err
	}
	e.conn.broke(err)
	return e.conn.reason()
}

func (e *end) ahead(which, p int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rooms[which].ahead(p)
}

// line queues up.
func (e *end) line(ctx context.Context, which, p int, try func() (bool, error)) error {
	w := newWaiter()
	e.mu.Lock()
	defer e.mu.Unlock()
	queue := &e.rooms[which][p]
	*queue = append(*queue, &w)
	e.hungry.Add(1)
	defer func() {
		*queue = slices.DeleteFunc(*queue, func(o *waiter) bool { return o == &w })
		e.hungry.Add(-1)
		e.feedLocked()
	}()
	for {
		w.ready = false
		if e.rooms[which].first() == &w {
			e.mu.Unlock()
			ok, err := try()
			e.mu.Lock()
			if ok || err != nil {
				return err
			}
		}
		if err := e.awaitLocked(ctx, &w); err != nil {
			return err
		}
	}
}

// feed lets those who are first in line try again.
func (e *end) feed() {
	e.mu.Lock()
	e.feedLocked()
	e.mu.Unlock()
}

func (e *end) feedLocked() {
	for i := range e.rooms {
		if w := e.rooms[i].first(); w != nil {
			e.satisfy(w)
		}
	}
}
