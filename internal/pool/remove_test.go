package pool_test

import (
	"context"
	"crypto/tls"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// TestRemove removes a node that holds a lease: its connections end, its certificate and its
// claims are refused, its lease is void; the others go on, and the name can join again.
func TestRemove(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b, c := newTestNode(t, "a", 1), newTestNode(t, "b", 0), newTestNode(t, "c", 0)
	// Records are removed by the removal here, never by their age.
	for _, n := range []*testNode{a, b, c} {
		n.opts.NodeTTL = time.Minute
	}
	a.up(ctx, nil)
	b.up(ctx, a)
	c.up(ctx, a)
	eventually(ctx, t, "all nodes", func() bool { return len(a.Nodes()) == 3 && len(b.Devices()) == 1 && len(c.Nodes()) == 3 })
	lease := acquire(ctx, t, b, pool.Request{Selector: selector(t, "a/opencl/0")})[0]
	claim, err := b.Claim(lease)
	if err != nil {
		t.Fatal(err)
	}
	queued, refused := make(chan pool.Waiting, 16), make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, pool.Request{Progress: func(w pool.Waiting) { queued <- w }})
		refused <- err
	}()
	<-queued
	// A connection of the node that is open when it is removed.
	open := dialState(ctx, t, a, b)
	for name, kind := range map[outboard.NodeID]outboard.Kind{"a": outboard.Conflict, "nobody": outboard.NotFound, "..": outboard.Invalid} {
		if err := a.Remove(ctx, name, pool.DefaultAway); outboard.KindOf(err) != kind {
			t.Errorf("remove %q: %v, want %v", name, err, kind)
		}
	}
	if err := a.Remove(ctx, "b", pool.DefaultAway); err != nil {
		t.Fatal(err)
	}
	if err := open.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, open); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("the removed node's connection is open:", err)
	}
	eventually(ctx, t, "the node is gone, with its lease", func() bool {
		return len(a.Nodes()) == 2 && len(a.Leases()) == 0 && len(c.Nodes()) == 2
	})
	if _, _, err := a.Check(ctx, claim); err == nil {
		t.Error("the removed node's claim counts")
	}
	for _, at := range []*testNode{a, c} {
		conn, err := (&tls.Dialer{Config: b.id.AnyNodeTLS(state.Protocol)}).DialContext(ctx, "tcp", at.addr)
		if err == nil {
			// TLS 1.3: the client hears of the refusal when it reads.
			_, err = conn.Read(make([]byte, 1))
		}
		if err == nil || !strings.Contains(err.Error(), "bad certificate") {
			t.Errorf("node %s accepts the removed node: %v", at.name, err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := b.state.Put(short, "nodes/b", []byte("{}"), 0); err == nil {
		t.Error("the removed node can write")
	}
	eventually(ctx, t, "the removed node says why it has no pool", func() bool { return outboard.KindOf(authority.CheckMembership(b.id)) == outboard.Denied })
	if _, err := b.Acquire(ctx, pool.Request{Selector: selector(t, "a/opencl/0")}); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("the removed node asks for a device: %v", err)
	}
	if err := <-refused; outboard.KindOf(err) != outboard.Denied {
		t.Errorf("the removed node waits for a device: %v", err)
	}
	if err := authority.CheckMembership(c.id); err != nil {
		t.Error("another node's membership:", err)
	}
	if _, err := c.Acquire(ctx, pool.Request{Selector: selector(t, "a/opencl/0")}); err != nil {
		t.Error("another node can't have its device:", err)
	}
	b.kill()
	again := newTestNode(t, "b", 0)
	again.up(ctx, a)
	eventually(ctx, t, "the name is there again", func() bool { return len(a.Nodes()) == 3 })
}

// dialState opens a connection of one node to the state of another.
func dialState(ctx context.Context, t *testing.T, at, from *testNode) *tls.Conn {
	t.Helper()
	conn, err := (&tls.Dialer{Config: from.id.AnyNodeTLS(state.Protocol)}).DialContext(ctx, "tcp", at.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return conn.(*tls.Conn)
}
