package state_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/freeport"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// The nodes that keep the state get new addresses, one after the other and then all at once. The
// pool starts again each time: with the addresses that the nodes remember, or with one that the
// operator names.
func TestVotersMove(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ca := testCA(t)
	a, b, c := newTestNode(t, ca, "a"), newTestNode(t, ca, "b"), newTestNode(t, ca, "c")
	all := []*testNode{a, b, c}
	for _, n := range all {
		n.listen = freeAddr(t)
	}
	a.open(ctx)
	b.open(ctx, a.addr)
	c.open(ctx, a.addr)
	waitRole(ctx, t, "voter", all...)
	for _, n := range all {
		n.stop()
		n.addr, n.listen = freeAddr(t), freeAddr(t)
		n.open(ctx)
		put(ctx, t, n, string(n.name))
		for _, other := range all {
			other.waitRoute(ctx, t, n.listen)
		}
	}
	restart(ctx, all)
	wantValue(ctx, t, a, "c")
	for _, n := range all {
		n.stop()
		n.addr, n.listen = freeAddr(t), freeAddr(t)
	}
	b.routePeers, c.routePeers = []string{a.listen}, []string{a.listen}
	restart(ctx, all)
	wantValue(ctx, t, b, "c")
}

// freeAddr returns an address of this machine on which nothing else listens until the test ends.
func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	return port.Addr()
}

// waitRoute waits until the node's role on disk names the address of a voter.
func (n *testNode) waitRoute(ctx context.Context, t *testing.T, addr string) {
	t.Helper()
	for {
		var role struct {
			Routes []string `json:"routes"`
		}
		text, err := os.ReadFile(filepath.Join(n.dir, "role.json"))
		if err == nil && json.Unmarshal(text, &role) == nil && slices.Contains(role.Routes, addr) {
			return
		}
		pause(ctx, t)
	}
}

// restart stops all nodes, then starts them together: each waits for the others.
func restart(ctx context.Context, nodes []*testNode) {
	for _, n := range nodes {
		n.stop()
	}
	done := make(chan struct{}, len(nodes))
	for _, n := range nodes {
		go func() {
			defer func() { done <- struct{}{} }()
			n.open(ctx)
		}()
	}
	for range nodes {
		<-done
	}
}

// A node whose address for routes is in use gets its copy once the address is free.
func TestRouteAddrInUse(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ca := testCA(t)
	a, b, c := newTestNode(t, ca, "a"), newTestNode(t, ca, "b"), newTestNode(t, ca, "c")
	c.listen = freeAddr(t)
	other, err := net.Listen("tcp", c.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a.open(ctx)
	b.open(ctx, a.addr)
	c.open(ctx, a.addr)
	for (state.Growth{State: c.State}).Health() == nil {
		pause(ctx, t)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	waitRole(ctx, t, "voter", a, b, c)
	if err := (state.Growth{State: c.State}).Health(); err != nil {
		t.Error(err)
	}
}

// Both new voters stop before their cluster has a leader. The pool gets its three copies once they are
// there again, whatever address they were told to join at.
func TestGrowthInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ca := testCA(t)
	a, b, c := newTestNode(t, ca, "a"), newTestNode(t, ca, "b"), newTestNode(t, ca, "c")
	a.listen, b.listen = freeAddr(t), freeAddr(t)
	b.routePeers, c.routePeers = []string{a.listen}, []string{a.listen}
	other, err := net.Listen("tcp", b.listen) // b's server starts only after c's has stopped
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a.open(ctx)
	first := put(ctx, t, a, "1")
	b.open(ctx, a.addr)
	c.open(ctx, a.addr)
	c.waitGroup(ctx, t)
	c.stop()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	b.waitGroup(ctx, t)
	b.stop()
	b.open(ctx)
	c.open(ctx)
	waitRole(ctx, t, "voter", a, b, c)
	wantValue(ctx, t, c, "1")
	if last := put(ctx, t, b, "2"); last <= first {
		t.Errorf("revision %d, was %d before", last, first)
	}
}

// waitGroup waits until the node's server has begun with its part of the cluster.
func (n *testNode) waitGroup(ctx context.Context, t *testing.T) {
	t.Helper()
	for {
		if _, err := os.Stat(filepath.Join(n.dir, "jetstream", "$SYS", "_js_", "_meta_", "peers.idx")); err == nil {
			return
		}
		pause(ctx, t)
	}
}
