package pool_test

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// Nodes are removed one after the other while the others work: each is refused at once, at every
// node, and the others notice nothing.
func TestRemovalsUnderLoad(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+removals*5*time.Second)
	defer cancel()
	a, b, c := newTestNode(t, "a", 1), newTestNode(t, "b", 0), newTestNode(t, "c", 1)
	a.up(ctx, nil)
	b.up(ctx, a)
	c.up(ctx, a)
	waitCopies(ctx, t, a, b, c)
	load, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, n := range []*testNode{b, c} {
		running.Go(func() { leaseUntil(load, t, n) })
	}
	var slowest time.Duration
	for range removals {
		d := newTestNode(t, "d", 0)
		d.up(ctx, b)
		eventually(ctx, t, "the new node", func() bool { return len(a.Nodes()) == 4 && len(d.Devices()) == 2 })
		if err := a.Remove(ctx, "d", pool.DefaultAway); err != nil {
			t.Fatal(err)
		}
		removed := time.Now()
		for _, at := range []*testNode{a, b, c} {
			eventually(ctx, t, "the removed node is refused", func() bool { return refuses(ctx, at, d) })
		}
		slowest = max(slowest, time.Since(removed))
		d.kill()
	}
	t.Logf("%d nodes removed; refused everywhere after %v at most", removals, slowest)
}

// refuses reports whether a node refuses the certificate of another.
func refuses(ctx context.Context, at, from *testNode) bool {
	conn, err := (&tls.Dialer{Config: from.id.AnyNodeTLS(state.Protocol)}).DialContext(ctx, "tcp", at.addr)
	if err == nil {
		defer conn.Close()
		// TLS 1.3: the client hears of the refusal when it reads.
		_, err = conn.Read(make([]byte, 1))
	}
	return err != nil && strings.Contains(err.Error(), "bad certificate")
}

// leaseUntil leases and releases a device until ctx ends. Each lease must succeed.
func leaseUntil(ctx context.Context, t *testing.T, n *testNode) {
	for ctx.Err() == nil {
		request := pool.Request{Selector: selector(t, "node="+string(n.name)), Memory: outboard.Bytes(1 << 20)}
		if n.name == "b" {
			request.Selector = selector(t, "node=a")
		}
		leases, err := n.Acquire(ctx, request)
		if err == nil {
			err = n.Release(ctx, leases[0])
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("node %s: %v", n.name, err)
			return
		}
	}
}

// A removed node that kept a copy of the state is out of the cluster: its copy takes no part, and
// the other two go on.
func TestRemoveKeeper(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, b, c := newTestNode(t, "a", 1), newTestNode(t, "b", 0), newTestNode(t, "c", 0)
	a.up(ctx, nil)
	b.up(ctx, a)
	c.up(ctx, a)
	waitCopies(ctx, t, a, b, c)
	if err := a.Remove(ctx, "c", pool.DefaultAway); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the removed node cannot write", func() bool {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := c.state.Put(short, "policies", []byte("{}"), 0)
		return err != nil
	})
	for _, n := range []*testNode{a, b} {
		if _, err := n.state.Put(ctx, "policies", []byte(n.name), 0); err != nil {
			t.Errorf("node %s: %v", n.name, err)
		}
	}
	lease := acquire(ctx, t, b, pool.Request{Selector: selector(t, "a/opencl/0")})[0]
	if err := b.Release(ctx, lease); err != nil {
		t.Error(err)
	}
	e, err := a.state.Get(ctx, "policies")
	if err != nil || string(e.Value) != "b" {
		t.Errorf("the policies are %q, %v", e.Value, err)
	}
	if n, err := a.state.LiveCopies(ctx); err != nil || n != 2 {
		t.Errorf("%d copies are up to date, %v, want 2", n, err)
	}
}

// Of three nodes that keep the state, two can't be removed one after the other: the state would be
// lost. After another node has taken over the first one's copy, the second one can.
func TestRemoveSecondKeeper(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, b, c := newTestNode(t, "a", 1), newTestNode(t, "b", 0), newTestNode(t, "c", 0)
	a.up(ctx, nil)
	b.up(ctx, a)
	c.up(ctx, a)
	waitCopies(ctx, t, a, b, c)
	eventually(ctx, t, "b knows the others that keep a copy", func() bool { return slices.Equal(b.OtherKeepers(), []string{"a", "c"}) })
	if err := a.Remove(ctx, "c", pool.DefaultAway); err != nil {
		t.Fatal(err)
	}
	if err := a.Remove(ctx, "b", pool.DefaultAway); outboard.KindOf(err) != outboard.Conflict {
		t.Fatalf("the node with the last copy but one: %v", err)
	}
	if _, err := b.state.Put(ctx, "policies", []byte("{}"), 0); err != nil {
		t.Errorf("the node that was not removed can't write: %v", err)
	}
}
