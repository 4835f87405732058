package pool_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 1), newTestNode(t, "b", 1)
	a.up(ctx, nil)
	b.up(ctx, a)
	eventually(ctx, t, "all devices", func() bool { return len(b.Devices()) == 2 })
	lease := acquire(ctx, t, b, pool.Request{Selector: selector(t, "a/opencl/0")})[0]
	claim, err := b.Claim(lease)
	if err != nil {
		t.Fatal(err)
	}
	got, holder, err := a.Check(ctx, claim)
	if err != nil || got.Lease != lease.Lease || got.Fence != lease.Fence || holder.ID != "b" {
		t.Fatalf("got %+v of %s, %v; want the lease of b", got, holder.ID, err)
	}
	stolen := lease
	stolen.Holder = "a"
	foreign, err := authority.Found(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := foreign.NewIdentity("b", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	late := lease
	late.Fence += 1000
	for name, tt := range map[string]struct {
		sign func() ([]byte, error)
		at   *testNode
		want string
	}{
		"another node's device": {func() ([]byte, error) { return claim, nil }, b, "has no such device"},
		"another's lease":       {func() ([]byte, error) { return b.Claim(stolen) }, a, "node b claims a lease of node a"},
		"foreign certificate":   {func() ([]byte, error) { return stranger.SignClaim(lease, time.Now()) }, a, "not of this pool"},
		"unknown fence":         {func() ([]byte, error) { return b.Claim(late) }, a, "does not know that lease"},
		"expired":               {func() ([]byte, error) { return b.id.SignClaim(lease, time.Now().Add(-time.Hour)) }, a, "has expired"},
		"future":                {func() ([]byte, error) { return b.id.SignClaim(lease, time.Now().Add(time.Hour)) }, a, "compare the machines' clocks"},
		"changed": {func() ([]byte, error) {
			return []byte(strings.Replace(string(claim), `"sig":"M`, `"sig":"N`, 1)), nil
		}, a, "signature"},
		"malformed": {func() ([]byte, error) { return []byte("{"), nil }, a, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := tt.sign()
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = tt.at.Check(ctx, text)
			if outboard.KindOf(err) != outboard.Denied || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want Denied with %q", err, tt.want)
			}
		})
	}
	if err := b.Release(ctx, lease); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the release", func() bool { return len(a.Leases()) == 0 })
	if _, _, err := a.Check(ctx, claim); outboard.KindOf(err) != outboard.LeaseLost {
		t.Errorf("a released lease: %v, want LeaseLost", err)
	}
}

// A holder whose record has expired, and comes back with its next heartbeat, may use its leases: after
// the death of nodes no record can be written until the table has a leader again.
func TestClaimWaitsForTheHoldersRecord(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 1), newTestNode(t, "b", 0)
	b.opts = pool.Options{Heartbeat: 200 * time.Millisecond, NodeTTL: time.Minute}
	a.up(ctx, nil)
	b.up(ctx, a)
	eventually(ctx, t, "the device", func() bool { return len(b.Devices()) == 1 })
	claim, err := b.Claim(acquire(ctx, t, b, pool.Request{})[0])
	if err != nil {
		t.Fatal(err)
	}
	a.Expire("b")
	if _, holder, err := a.Check(ctx, claim); err != nil || holder.ID != "b" {
		t.Errorf("the holder is %q, %v; want b", holder.ID, err)
	}
}

// A node whose record has expired is known again after its next heartbeat; a node that has left is not
// waited for.
func TestWaitForNode(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 0), newTestNode(t, "b", 0)
	b.opts = pool.Options{Heartbeat: 200 * time.Millisecond, NodeTTL: time.Minute}
	a.up(ctx, nil)
	b.up(ctx, a)
	eventually(ctx, t, "both nodes", func() bool { return len(a.Nodes()) == 2 })
	a.Expire("b")
	if n, ok := pool.WaitForNode(ctx, a.Pool, "b"); !ok || n.Addr != b.addr {
		t.Errorf("a record that had expired: %v, address %q, want %q", ok, n.Addr, b.addr)
	}
	b.stop()
	eventually(ctx, t, "b has left", func() bool { return len(a.Nodes()) == 1 })
	if _, ok := pool.WaitForNode(ctx, a.Pool, "b"); ok {
		t.Error("found the node that has left")
	}
}
