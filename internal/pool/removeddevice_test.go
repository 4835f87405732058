package pool_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
)

// TestRemovedNodesDevices removes the node of a device that is leased: the lease ends, so its
// holder's program does not go on sending its data to that node.
func TestRemovedNodesDevices(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b, c := newTestNode(t, "a", 1), newTestNode(t, "b", 1), newTestNode(t, "c", 0)
	for _, n := range []*testNode{a, b, c} {
		n.opts.NodeTTL, n.opts.LeaseTTL = time.Minute, time.Minute
	}
	a.up(ctx, nil)
	b.up(ctx, a)
	c.up(ctx, a)
	eventually(ctx, t, "all devices", func() bool { return len(a.Devices()) == 2 && len(c.Devices()) == 2 })
	var checks []func()
	for _, n := range []*testNode{a, c} {
		lease := acquire(ctx, t, n, pool.Request{Selector: selector(t, "b/opencl/0"), Memory: 1})[0]
		held := make(chan error, 1)
		go func() { held <- n.Hold(ctx, lease) }()
		checks = append(checks, func() {
			if err := <-held; outboard.KindOf(err) != outboard.LeaseLost {
				t.Errorf("node %s holds the removed node's device: %v", n.name, err)
			}
			if _, err := n.Renew(ctx, lease); outboard.KindOf(err) != outboard.LeaseLost {
				t.Errorf("node %s renews its lease: %v", n.name, err)
			}
		})
	}
	if err := a.Remove(ctx, "b", pool.DefaultAway); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "no lease stands", func() bool { return len(a.Leases()) == 0 && len(c.Leases()) == 0 })
	for _, check := range checks {
		check()
	}
	b.kill()
	again := newTestNode(t, "b", 1)
	again.up(ctx, a)
	eventually(ctx, t, "the name is there again", func() bool { return len(c.Devices()) == 2 })
	if leases := acquire(ctx, t, c, pool.Request{Selector: selector(t, "b/opencl/0")}); len(leases) != 1 {
		t.Error("the device of the node that joined anew can't be leased")
	}
}

// The grants of a removed node leave the table, also those of devices that no node has: each node would
// keep them for good.
func TestRemovedNodesGrants(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 1, 0)
	eventually(ctx, t, "the device", func() bool { return len(b.Devices()) == 1 })
	lease := acquire(ctx, t, b, pool.Request{Selector: selector(t, "a/opencl/0")})[0]
	invented := fmt.Sprintf(`[{"lease":"x","holder":"b","boot":%q}]`, lease.Boot)
	if _, err := b.state.Put(ctx, "leases/nowhere/opencl/7/b", []byte(invented), 0); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "both grants", func() bool { return len(a.Leases()) == 2 })
	if err := a.Remove(ctx, "b", pool.DefaultAway); err != nil {
		t.Fatal(err)
	}
	if left, err := a.state.Entries(ctx, "leases/"); err != nil || len(left) != 0 {
		t.Errorf("the table has %+v, error %v; want no grants", left, err)
	}
}
