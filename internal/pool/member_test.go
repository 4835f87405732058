package pool_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

func ids(nodes []outboard.Node) []outboard.NodeID {
	var ids []outboard.NodeID
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	return ids
}

func wantNodes(ctx context.Context, t *testing.T, n *testNode, want ...outboard.NodeID) {
	t.Helper()
	eventually(ctx, t, "nodes", func() bool { return cmp.Equal(ids(n.Nodes()), want) })
}

func TestMembership(t *testing.T) {
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 1), newTestNode(t, "b", 0)
	a.up(ctx, nil)
	b.up(ctx, a)
	wantNodes(ctx, t, a, "a", "b")
	changed := a.Changed()
	self := b.Self()
	self.Devices = []outboard.Device{testDevice("b", 0)}
	if err := b.Announce(ctx, self); err != nil {
		t.Fatal(err)
	}
	<-changed
	eventually(ctx, t, "b's device", func() bool { return len(a.Devices()) == 2 })
	b.stop()
	wantNodes(ctx, t, a, "a")
}

// copies are the nodes that say that they keep a copy of the pool's state.
func copies(n *testNode) []outboard.NodeID {
	return ids(slices.DeleteFunc(n.Nodes(), func(n outboard.Node) bool { return !n.Copy }))
}

// The founder keeps the only copy, until three nodes keep one each; a node beyond
// them keeps none.
func TestNodesSayWhoKeepsCopies(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b, c, d := newTestNode(t, "a", 0), newTestNode(t, "b", 0), newTestNode(t, "c", 0), newTestNode(t, "d", 0)
	for _, n := range []*testNode{a, b, c, d} {
		n.opts.Heartbeat = 200 * time.Millisecond
	}
	a.up(ctx, nil)
	b.up(ctx, a)
	wantNodes(ctx, t, b, "a", "b")
	if diff := cmp.Diff([]outboard.NodeID{"a"}, copies(b)); diff != "" {
		t.Errorf("copies in a pool of two (-want +got):\n%s", diff)
	}
	c.up(ctx, a)
	waitCopies(ctx, t, a, b, c)
	d.up(ctx, a)
	wantNodes(ctx, t, d, "a", "b", "c", "d")
	eventually(ctx, t, "three nodes say so", func() bool { return cmp.Equal(copies(d), []outboard.NodeID{"a", "b", "c"}) })
}

// A dead node leaves after its time-to-live, its leases after theirs; then those behind its
// ticket are served.
func TestDeadNodeVoidsLeases(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 1), newTestNode(t, "b", 0)
	times := pool.Options{Heartbeat: 200 * time.Millisecond, NodeTTL: 3 * time.Second, LeaseTTL: 3 * time.Second}
	a.opts, b.opts = times, times
	a.up(ctx, nil)
	b.up(ctx, a)
	eventually(ctx, t, "b sees the device", func() bool { return len(b.Devices()) == 1 })
	acquire(ctx, t, b, pool.Request{})
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	queued, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		_, err := b.Acquire(waiting, pool.Request{Progress: func(pool.Waiting) { queued <- struct{}{} }})
		ended <- err
	}()
	select {
	case <-queued:
	case err := <-ended: // on a machine so busy that b's first lease had expired
		ended <- err
	}
	b.kill()
	acquire(ctx, t, a, pool.Request{})
	wantNodes(ctx, t, a, "a")
	a.tickets(ctx, 0)
	cancel()
	<-ended
}

// A node that starts again is not taken for the one that held leases before.
func TestRebootVoidsLeases(t *testing.T) {
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 1), newTestNode(t, "b", 0)
	a.opts = pool.Options{LeaseTTL: time.Hour, NodeTTL: time.Hour}
	b.opts = a.opts
	a.up(ctx, nil)
	b.up(ctx, a)
	eventually(ctx, t, "b sees the device", func() bool { return len(b.Devices()) == 1 })
	old := acquire(ctx, t, b, pool.Request{})[0]
	eventually(ctx, t, "the lease", func() bool { return len(a.Leases()) == 1 })
	b.kill()
	b.up(ctx, nil)
	// The device's node purges it, without anybody asking for the device.
	eventually(ctx, t, "the lease is gone", func() bool { return len(a.Leases()) == 0 })
	if _, err := b.Renew(ctx, old); outboard.KindOf(err) != outboard.LeaseLost {
		t.Errorf("renew a lease of an earlier boot: %v, want LeaseLost", err)
	}
	acquire(ctx, t, a, pool.Request{NoWait: true})
}

func TestRestartForgetsNothing(t *testing.T) {
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 1), newTestNode(t, "b", 0)
	a.up(ctx, nil)
	b.up(ctx, a)
	token := a.token(ctx)
	poolID, key := a.id.PoolID(), a.id.Fingerprint()
	lease := acquire(ctx, t, a, pool.Request{})[0]
	b.stop()
	a.stop()
	a.name = "" // The identity knows it.
	a.up(ctx, nil)
	if a.id.Name() != "a" || a.id.PoolID() != poolID || a.id.Fingerprint() != key {
		t.Error("the identity has changed")
	}
	b.up(ctx, nil)
	wantNodes(ctx, t, b, "a", "b")
	if again := acquire(ctx, t, a, pool.Request{})[0]; again.Fence <= lease.Fence {
		t.Errorf("fence %d after %d", again.Fence, lease.Fence)
	}
	c := newTestNode(t, "c", 0)
	if err := c.enter(ctx, pool.EnterOptions{Join: b.addr, Token: token}); err != nil {
		t.Errorf("a token from before the restart, on another node: %v", err)
	}
}

func TestJoinRefused(t *testing.T) {
	ctx := testContext(t)
	a, other := newTestNode(t, "a", 0), newTestNode(t, "z", 0)
	a.up(ctx, nil)
	other.up(ctx, nil)
	used := a.token(ctx)
	b := newTestNode(t, "b", 0)
	if err := b.enter(ctx, pool.EnterOptions{Join: a.addr, Token: used}); err != nil {
		t.Fatal(err)
	}
	expired, err := a.NewToken(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the token expires", func() bool { return !a.hasToken(ctx, t, expired) })
	for name, tt := range map[string]struct {
		token string
		name  outboard.NodeID
		kind  outboard.Kind
		want  string
	}{
		"used":         {used, "c", outboard.Denied, "make a new one with `outboard token`"},
		"used, known":  {used, "b", outboard.Denied, "make a new one with `outboard token`"},
		"expired":      {expired, "c", outboard.Denied, "make a new one with `outboard token`"},
		"wrong":        {wrongSecret(a.token(ctx)), "c", outboard.Denied, "make a new one with `outboard token`"},
		"another pool": {other.token(ctx), "c", outboard.Denied, "of another pool than the token"},
		"no token":     {"hello", "c", outboard.Invalid, "want the whole text"},
		"name taken":   {a.token(ctx), "b", outboard.Conflict, "choose another --name"},
		"bad name":     {a.token(ctx), "B_", outboard.Invalid, "lower-case"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestNode(t, tt.name, 0)
			err := c.enter(ctx, pool.EnterOptions{Join: a.addr, Token: tt.token})
			if outboard.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v (%v), want %v with %q", err, outboard.KindOf(err), tt.kind, tt.want)
			}
			if authority.Exists(c.dir) {
				t.Error("a refused node has an identity")
			}
		})
	}
}

// hasToken looks whether the pool still knows a token, as the server counts time.
func (n *testNode) hasToken(ctx context.Context, t *testing.T, text string) bool {
	t.Helper()
	token, err := authority.ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.state.Get(ctx, "tokens/"+token.Hash())
	return err == nil
}

// wrongSecret changes the last character that counts of a token.
func wrongSecret(token string) string {
	b := []byte(token)
	i := len(b) - 4
	if b[i] == 'a' {
		b[i] = 'b'
	} else {
		b[i] = 'a'
	}
	return string(b)
}

func TestFilesArePrivate(t *testing.T) {
	ctx := testContext(t)
	a := newTestNode(t, "a", 0)
	a.up(ctx, nil)
	a.stop()
	for _, name := range []string{"node.key", "node.crt", "pool.crt"} {
		info, err := os.Stat(filepath.Join(a.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := info.Mode().Perm(), fs.FileMode(0o600); got != want {
			t.Errorf("%s has mode %v, want %v", name, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(a.dir, "authority.json")); err == nil {
		t.Error("the authority's key is still on the founder's disk")
	}
}

// A node that stops leaves in good order also while its last heartbeats are still being stored.
func TestLeaveDuringHeartbeats(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 0), newTestNode(t, "b", 0)
	a.opts.NodeTTL, b.opts.NodeTTL = time.Hour, time.Hour // only a removal ends a record
	b.opts.Heartbeat = 2 * time.Minute                    // how long Close may take
	a.up(ctx, nil)
	b.up(ctx, a)
	eventually(ctx, t, "both nodes", func() bool { return len(a.Nodes()) == 2 })
	// The writes come to an end, as late heartbeats do: a removal by compare-and-swap may lose to
	// writers that never pause.
	const late = 50
	began := make(chan struct{}, 4*late)
	var writing sync.WaitGroup
	for range 4 {
		writing.Go(func() {
			for range late {
				began <- struct{}{}
				e, err := a.state.Get(ctx, "nodes/b")
				if errors.Is(err, state.ErrNotFound) {
					return
				}
				if err == nil {
					_, err = a.state.Update(ctx, e.Key, e.Value, e.Revision, time.Hour)
				}
				if err != nil && !errors.Is(err, state.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	<-began
	b.stop()
	writing.Wait()
	eventually(ctx, t, "the node has left", func() bool { return len(a.Nodes()) == 1 })
}
