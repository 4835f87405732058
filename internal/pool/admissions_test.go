package pool_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
)

// The nodes that a node has admitted, and those that these have admitted, are known when it is
// removed, whatever their own records say.
func TestAdmissions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b, c, d := newTestNode(t, "a", 0), newTestNode(t, "b", 0), newTestNode(t, "c", 0), newTestNode(t, "d", 0)
	a.up(ctx, nil)
	b.up(ctx, a)
	// Its token was made by a, and it is shown to b.
	if err := c.enter(ctx, pool.EnterOptions{Join: b.addr, Token: a.token(ctx)}); err != nil {
		t.Fatal(err)
	}
	d.opts.NodeTTL = time.Minute
	d.claims = []outboard.NodeID{"a"}
	d.up(ctx, c)
	eventually(ctx, t, "all nodes", func() bool { return len(a.Nodes()) == 4 })
	admitted := map[outboard.NodeID][]outboard.NodeID{}
	for _, n := range a.Nodes() {
		admitted[n.ID] = n.AdmittedBy
	}
	want := map[outboard.NodeID][]outboard.NodeID{"a": nil, "b": {"a"}, "c": {"a", "b"}, "d": {"c"}}
	if diff := cmp.Diff(admitted, want); diff != "" {
		t.Error("admitted by (-got +want):\n", diff)
	}
	waitCopies(ctx, t, a, b, c)
	d.kill()
	if err := a.Remove(ctx, "b", pool.DefaultAway); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "those that the removed node has admitted", func() bool {
		return cmp.Equal(pool.AdmittedBy(a.Pool, "b"), []outboard.NodeID{"c", "d"}) && len(pool.AdmittedBy(a.Pool, "d")) == 0
	})
	eventually(ctx, t, "the removed node is none of the first one's", func() bool {
		return cmp.Equal(pool.AdmittedBy(a.Pool, "a"), []outboard.NodeID{"c", "d"})
	})
}
