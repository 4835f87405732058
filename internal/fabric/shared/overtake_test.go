package shared

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
)

// Senders overtake one that waits, so that each message is no goroutine switch, but only so often,
// and never one of a higher priority.
func TestOvertaking(t *testing.T) {
	c, _, _ := against(t, dialler, Options{Heap: minHeap, Slots: 8})
	e := &c.caller.laneEnd
	normal, high, low := rank(call.Normal), rank(call.High), rank(call.Low)
	if e.outranked(ringSlot, normal) {
		t.Error("a sender queues while nobody waits")
	}
	w := newWaiter()
	e.queueFirst(normal, &w)
	if !e.outranked(ringSlot, low) {
		t.Error("a sender of a lower priority overtakes")
	}
	if e.outranked(ringSlot, high) || e.outranked(heapSpace, normal) {
		t.Error("a sender of a higher priority, or for another resource, queues")
	}
	for n := range maxOvertakes {
		if e.outranked(ringSlot, normal) {
			t.Fatalf("send %d queues", n)
		}
	}
	if !e.outranked(ringSlot, normal) {
		t.Error("a waiting sender is overtaken for ever")
	}
	// One that has waited sends, and the count begins anew.
	e.queueFirst(normal)
	if err := e.waitTurn(t.Context(), ringSlot, normal, func() (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	e.queueFirst(normal, &w)
	if e.outranked(ringSlot, normal) {
		t.Error("a sender that has waited does not end the count")
	}
	e.queueFirst(normal)
}

// queueFirst has these senders, and no others, wait for a slot of the ring.
func (e *laneEnd) queueFirst(p int, waiting ...*waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting[ringSlot][p] = waiting
}

// A blocked sender that reads the ring itself sleeps until the peer has released something: it does
// not try again and again.
func TestBlockedSenderSleeps(t *testing.T) {
	c, _, _ := against(t, dialler, Options{Heap: minHeap, Slots: 8, maxSleep: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	attempts := 0
	err := c.caller.waitTurn(ctx, ringSlot, rank(call.Normal), func() (bool, error) {
		attempts++
		return false, nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || attempts != 1 {
		t.Errorf("%d attempts while the peer released nothing; %v", attempts, err)
	}
}
