package shared

import (
	"testing"

	"github.com/outboard-run/outboard/fabric/call"
)

// Senders overtake one that waits, so that each message is no goroutine switch, but only so often,
// and never one of a higher priority.
func TestOvertaking(t *testing.T) {
	e := new(laneEnd)
	normal, high, low := rank(call.Normal), rank(call.High), rank(call.Low)
	if e.outranked(ringSlot, normal) {
		t.Error("a sender queues while nobody waits")
	}
	w := newWaiter()
	e.waiting[ringSlot][normal] = append(e.waiting[ringSlot][normal], &w)
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
	e.waiting[ringSlot][normal] = nil
	if err := e.waitTurn(t.Context(), ringSlot, normal, func() (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	e.waiting[ringSlot][normal] = append(e.waiting[ringSlot][normal], &w)
	if e.outranked(ringSlot, normal) {
		t.Error("a sender that has waited does not end the count")
	}
}
