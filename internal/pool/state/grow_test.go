package state_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// A pool grows to three copies, loses the founder, goes on, and forgets nothing
// when all of it starts again.
func TestGrow(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ca := testCA(t)
	a, b, c, d := newTestNode(t, ca, "a"), newTestNode(t, ca, "b"), newTestNode(t, ca, "c"), newTestNode(t, ca, "d")
	start := time.Now()
	lap := func(what string) {
		t.Logf("%-30s %6.3fs", what, time.Since(start).Seconds())
		start = time.Now()
	}
	a.open(ctx)
	lap("found")
	first := put(ctx, t, a, "1")
	extra := newExtras(ctx, t, a.State)
	b.open(ctx, a.addr)
	lap("second joins")
	wantValue(ctx, t, b, "1")
	c.open(ctx, a.addr)
	lap("third joins")
	waitRole(ctx, t, "voter", a, b, c)
	lap("three copies")
	extra.check(ctx, t, a.State)
	extra.expired(ctx, t, b.State)
	extra.write(ctx, t, a.State)
	d.open(ctx, b.addr)
	lap("fourth joins")
	if last := put(ctx, t, d, "2"); last <= first {
		t.Errorf("revision %d after the move, was %d before: want it greater", last, first)
	}
	lap("put")
	a.stop()
	lap("founder stops")
	put(ctx, t, b, "3")
	lap("put without the founder")
	extra.check(ctx, t, b.State)
	extra.write(ctx, t, b.State)
	lap("logs and buckets without the founder")
	wantValue(ctx, t, c, "3")
	put(ctx, t, d, "4")
	lap("put by the guest")
	b.stop()
	c.stop()
	d.stop()
	lap("all stop")
	done := make(chan struct{}, 3)
	for _, n := range []*testNode{a, b, c} {
		go func() { n.open(ctx); done <- struct{}{} }()
	}
	for range 3 {
		<-done
	}
	lap("all start")
	wantValue(ctx, t, a, "4")
	extra.check(ctx, t, a.State)
}

func put(ctx context.Context, t *testing.T, n *testNode, value string) uint64 {
	t.Helper()
	rev, err := n.Put(ctx, "ticks/grow/test", []byte(value), 0)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func wantValue(ctx context.Context, t *testing.T, n *testNode, want string) {
	t.Helper()
	for {
		e, err := n.Get(ctx, "ticks/grow/test")
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Value) == want {
			return
		}
		pause(ctx, t)
	}
}

func waitRole(ctx context.Context, t *testing.T, want string, nodes ...*testNode) {
	t.Helper()
	for _, n := range nodes {
		for n.Role() != want {
			pause(ctx, t)
		}
	}
	for _, n := range nodes {
		for copies, err := n.LiveCopies(ctx); err != nil || copies != state.Copies; copies, err = n.LiveCopies(ctx) {
			pause(ctx, t)
		}
	}
}

// pause gives way between two looks at something that will come.
func pause(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	case <-time.After(20 * time.Millisecond):
	}
}

// A founder that is stopped in the midst of the move goes on at its next start,
// with all logs and buckets.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ca := testCA(t)
	a, b, c := newTestNode(t, ca, "a"), newTestNode(t, ca, "b"), newTestNode(t, ca, "c")
	a.open(ctx)
	put(ctx, t, a, "1")
	extra := newExtras(ctx, t, a.State)
	b.open(ctx, a.addr)
	c.open(ctx, a.addr)
	for !a.imports() {
		pause(ctx, t)
	}
	a.stop()
	a.open(ctx)
	waitRole(ctx, t, "voter", a, b, c)
	wantValue(ctx, t, b, "1")
	extra.check(ctx, t, b.State)
	extra.write(ctx, t, c.State)
	a.stop()
	extra.check(ctx, t, c.State)
}

// imports says by the node's role that it has to bring the state into the cluster.
func (n *testNode) imports() bool {
	text, err := os.ReadFile(filepath.Join(n.dir, "role.json"))
	return err == nil && bytes.Contains(text, []byte(`"import": true`))
}
