package pool_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// TestRemovalRenewsAuthority removes a node that kept the authority's key, while another is
// away: nodes that are up get new certificates, the one that was away comes back with its own,
// and what the removed one signs with the key that it has is refused.
func TestRemovalRenewsAuthority(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	a, b, c, d := newTestNode(t, "a", 1), newTestNode(t, "b", 0), newTestNode(t, "c", 0), newTestNode(t, "d", 0)
	a.up(ctx, nil)
	b.up(ctx, a)
	c.up(ctx, a)
	waitCopies(ctx, t, a, b, c)
	d.up(ctx, a)
	wantNodes(ctx, t, a, "a", "b", "c", "d")
	stolen, err := c.Authority(ctx)
	if err != nil {
		t.Fatal(err)
	}
	unused := a.token(ctx)
	d.stop()
	if err := a.Remove(ctx, "c", time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*testNode{a, b} {
		eventually(ctx, t, string(n.name)+" has a new certificate", func() bool { return n.id.Roots().Serial == 1 && n.id.IsCurrent() })
	}
	if routed := c.state.Role(); routed != "voter" {
		t.Errorf("the removed node is %q: it should have kept a copy", routed)
	}
	wantNodes(ctx, t, b, "a", "b")

	d.up(ctx, nil)
	eventually(ctx, t, "the node that was away has a new certificate", func() bool { return d.id.IsCurrent() && d.id.Roots().Serial == 1 })
	wantNodes(ctx, t, a, "a", "b", "d")

	thief := &testNode{t: t, name: "d"}
	if thief.id, err = stolen.NewIdentity("d", time.Now()); err != nil {
		t.Fatal(err)
	}
	fresh := &testNode{t: t, name: "x"}
	if fresh.id, err = stolen.NewIdentity("x", time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, at := range []*testNode{a, b} {
		for _, n := range []*testNode{thief, fresh, c} {
			if !refuses(ctx, at, n) {
				t.Errorf("node %s accepts %s, whose certificate the removed node signed", at.name, n.name)
			}
		}
	}
	e := newTestNode(t, "e", 0)
	if err := e.enter(ctx, pool.EnterOptions{Join: a.addr, Token: unused}); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("a token of the earlier authority: %v, want Denied", err)
	}
	e.up(ctx, b)
	wantNodes(ctx, t, a, "a", "b", "d", "e")
	conn, err := (&tls.Dialer{Config: e.id.AnyNodeTLS(state.Protocol)}).DialContext(ctx, "tcp", a.addr)
	if err != nil {
		t.Fatal("a node that joined later:", err)
	}
	conn.Close()
}

// A node renews its certificate in the last year of it, whether or not it keeps the pool's state.
func TestExpiringCertificatesAreRenewed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	a, b := newTestNode(t, "a", 0), newTestNode(t, "b", 0)
	a.up(ctx, nil)
	b.up(ctx, a)
	ca, err := a.Authority(ctx)
	if err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-9 * 365 * 24 * time.Hour / 2)
	for _, n := range []*testNode{a, b} {
		old, err := ca.SignNode(n.name, n.id.Key().Public(), long)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.id.Replace(old); err != nil {
			t.Fatal(err)
		}
		eventually(ctx, t, string(n.name)+" has a new certificate", func() bool {
			return n.id.IsCurrent() && n.id.Cert().NotAfter.After(old.NotAfter)
		})
	}
	wantNodes(ctx, t, b, "a", "b")
}
