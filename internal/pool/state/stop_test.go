package state_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// openThree opens a pool whose three nodes keep a copy each.
func openThree(ctx context.Context, t *testing.T) (a, b, c *testNode) {
	t.Helper()
	ca := testCA(t)
	a, b, c = newTestNode(t, ca, "a"), newTestNode(t, ca, "b"), newTestNode(t, ca, "c")
	a.open(ctx)
	b.open(ctx, a.addr)
	c.open(ctx, a.addr)
	waitRole(ctx, t, "voter", a, b, c)
	return a, b, c
}

// lead makes a node lead the table.
func lead(ctx context.Context, t *testing.T, n *testNode) {
	t.Helper()
	for {
		// An answer may be lost while the leader changes.
		short, cancel := context.WithTimeout(ctx, time.Second)
		err := n.MoveLeader(short, string(n.name))
		if cancel(); err == nil {
			return
		}
		pause(ctx, t)
	}
}

// TestStopTransfersLeadership stops the leader of the table: when its stop is over, the others
// have elected. When a second node is gone, the last one names those that the state needs.
func TestStopTransfersLeadership(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, b, c := openThree(ctx, t)
	lead(ctx, t, a)
	a.stop()
	if leader := state.LocalLeader(b.State); leader != "b" && leader != "c" {
		t.Errorf("after the leader's stop %q leads, want one of the others", leader)
	}
	put(ctx, t, c, "1")
	b.stop()
	waitFor(t, 2*time.Minute, "the last node reports that the others are away", func() bool {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := c.Put(short, "ticks/grow/test", []byte("2"), 0)
		health := c.Health()
		return err != nil && health != nil && strings.HasSuffix(health.Error(), "are not connected: a, b")
	})
}

// TestLastNodesStop stops the nodes of a pool of which one died: the requests of the last one
// end with an error, without waiting for a majority.
func TestLastNodesStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, b, c := openThree(ctx, t)
	a.stop()
	put(ctx, t, b, "1")
	for _, n := range []*testNode{b, c} {
		n.BeginStop()
	}
	put(ctx, t, b, "2") // two are a majority
	b.stop()
	if _, err := c.Put(ctx, "ticks/grow/test", []byte("3"), 0); outboard.KindOf(err) != outboard.Unreachable || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		t.Errorf("a write of the last node that stops: %v, want Unreachable before the deadline", err)
	}
}

// TestIsolatedKeeperDropsGuests isolates a voter to which a guest is connected: the guest goes to
// one that has a majority, and does not wait for this one.
func TestIsolatedKeeperDropsGuests(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	a, b, c := openThree(ctx, t)
	d := newTestNode(t, a.ca, "d")
	d.open(ctx, c.addr)
	put(ctx, t, d, "1")
	// The others refuse it now, as when it was removed.
	for _, n := range []*testNode{a, b} {
		n.id.Revoke(c.id.Fingerprint())
	}
	c.id.Revoke(a.id.Fingerprint())
	c.id.Revoke(b.id.Fingerprint())
	put(ctx, t, d, "2")
	wantValue(ctx, t, a, "2")
}
