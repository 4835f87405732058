package pool_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/pool"
)

// Jobs that together want more than there is never wait for each other: each has its turn. Every
// round two nodes ask at once for more than half of the devices, in one request each.
func TestTwoJobsThatWantMoreThanThereIs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	a, b := newTestNode(t, "harbour", 3), newTestNode(t, "dinghy", 2)
	a.up(ctx, nil)
	b.up(ctx, a)
	eventually(ctx, t, "both nodes' devices", func() bool { return len(a.Devices()) == 5 && len(b.Devices()) == 5 })
	for round := range jobRounds {
		var jobs sync.WaitGroup
		for i, n := range []*testNode{a, b} {
			count := 3 + (round+i)%3 // 3 to 5 of 5 devices
			jobs.Go(func() { runJob(ctx, t, n, count) })
		}
		jobs.Wait()
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	eventually(ctx, t, "all leases are released", func() bool { return len(a.Leases()) == 0 })
}

// runJob leases all devices of a job, and gives them back.
func runJob(ctx context.Context, t *testing.T, n *testNode, count int) {
	leases, err := n.Acquire(ctx, pool.Request{Count: count})
	if err != nil || len(leases) != count {
		t.Errorf("%s: %d of %d devices: %v", n.name, len(leases), count, err)
		return
	}
	for _, l := range leases {
		if err := n.Release(ctx, l); err != nil {
			t.Errorf("%s: release: %v", n.name, err)
		}
	}
}
