package state_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// announce writes a node's record of its presence, as the pool does.
func announce(ctx context.Context, t *testing.T, n *testNode) {
	t.Helper()
	if _, err := n.Put(ctx, "nodes/"+string(n.name), []byte("{}"), 0); err != nil {
		t.Fatal(err)
	}
}

// TestReplaceKeeper has a fourth node keep the copy of one that died, while others write. No
// acknowledged write is lost, the new copy counts for the majority, and the old one does no harm
// when it is back.
func TestReplaceKeeper(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ca := testCA(t)
	a, b, c, d := newTestNode(t, ca, "a"), newTestNode(t, ca, "b"), newTestNode(t, ca, "c"), newTestNode(t, ca, "d")
	all := []*testNode{a, b, c, d}
	for _, n := range all {
		n.replaceAfter = time.Second
	}
	a.open(ctx)
	b.open(ctx, a.addr)
	c.open(ctx, a.addr)
	waitRole(ctx, t, "voter", a, b, c)
	extra := newExtras(ctx, t, a.State)
	d.open(ctx, a.addr)
	announce(ctx, t, d)
	log := openLog(ctx, t, b.State)
	stop, progress := make(chan struct{}), make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { appendUntil(ctx, t, log, "t/app/replace", stop, progress) })
	for range 3 {
		<-progress
	}

	c.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		waitRole(ctx, t, "voter", a, b, d)
	}()
	for waiting := true; waiting; {
		select {
		case <-progress:
		case <-done:
			waiting = false
		}
	}
	waitAllCopies(ctx, t, d)
	close(stop)
	writing.Wait()
	put(ctx, t, a, "1")

	// The old copy comes back, and is none any more.
	c.open(ctx)
	for c.Role() != "guest" {
		pause(ctx, t)
	}
	wantValue(ctx, t, c, "1")
	if _, err := os.Stat(filepath.Join(c.dir, "jetstream")); err == nil {
		t.Error("the old copy is on the disk still")
	}
	for _, n := range []*testNode{c, a} {
		if kept, err := state.KeptCopy(ctx, n.State, "c"); err != nil || !kept {
			t.Errorf("at %s: node c kept a copy: %t, %v, want true", n.name, kept, err)
		}
	}

	// The new copy and one of the others are a majority, the old one plays no part in it.
	a.stop()
	put(ctx, t, d, "2")
	extra.check(ctx, t, d.State)
	records, err := openLog(ctx, t, d.State).Read(ctx, "t/app/replace")
	if err != nil || len(records) < 3 {
		t.Errorf("%d records, %v", len(records), err)
	}
	wantValue(ctx, t, c, "2")
}

// waitAllCopies waits until a node's server keeps a copy of each stream that another one keeps.
func waitAllCopies(ctx context.Context, t *testing.T, n *testNode) {
	t.Helper()
	for want := ""; ; pause(ctx, t) {
		streams, current := state.LocalStreams(n.State)
		if current && len(streams) > 3 {
			return
		}
		if got := fmt.Sprint(streams); got != want {
			t.Log("copies:", got)
			want = got
		}
	}
}
