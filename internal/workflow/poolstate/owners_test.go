package poolstate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/poolstate"
)

// A pool is the members and the executions' log of some nodes.
type pool struct {
	mu      sync.Mutex
	nodes   []outboard.NodeID
	changed chan struct{}
	owners  map[string]outboard.NodeID
	over    map[string]bool
	reads   int
	fails   error
}

func newPool(nodes ...outboard.NodeID) *pool {
	return &pool{nodes: nodes, changed: make(chan struct{}), owners: map[string]outboard.NodeID{}, over: map[string]bool{}}
}

func (p *pool) Nodes() []outboard.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []outboard.Node
	for _, n := range p.nodes {
		all = append(all, outboard.Node{ID: n})
	}
	return all
}

func (p *pool) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *pool) set(nodes ...outboard.NodeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes = nodes
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pool) keys(_ context.Context, prefix string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for key := range p.owners {
		if strings.HasPrefix(key, prefix) {
			all = append(all, key)
		}
	}
	return all, p.fails
}

func (p *pool) owner(_ context.Context, key string) (outboard.NodeID, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	return p.owners[key], p.over[key], p.fails
}

func (p *pool) record(key string, node outboard.NodeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owners[key] = node
}

func (p *pool) node(self outboard.NodeID) *poolstate.Owners {
	return poolstate.NewOwners(poolstate.OwnersOptions{Members: p, Self: self, Prefix: "shop/", Keys: p.keys, Owner: p.owner})
}

func TestClaim(t *testing.T) {
	p := newPool("a", "b")
	p.owners = map[string]outboard.NodeID{"shop/x/mine": "a", "shop/x/theirs": "b", "shop/x/left": "c", "shop/x/over": "b"}
	p.over["shop/x/over"] = true
	o := p.node("a")
	for key, want := range map[string]error{
		"shop/x/new": nil, "shop/x/mine": nil, "shop/x/theirs": poolstate.ErrOwned, "shop/x/left": nil, "shop/x/over": nil,
	} {
		for range 2 {
			if err := o.Claim(t.Context(), key); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", key, err, want)
			}
		}
	}
	p.set("b") // a is not sure that it is there itself
	if err := o.Claim(t.Context(), "shop/x/other"); err != nil {
		t.Error(err)
	}
	p.record("shop/x/left2", "c")
	if err := o.Claim(t.Context(), "shop/x/left2"); !errors.Is(err, poolstate.ErrOwned) {
		t.Errorf("took from a node of which it does not know that it has left: %v", err)
	}
	p.fails = errors.New("no log")
	if err := o.Claim(t.Context(), "shop/x/broken"); !errors.Is(err, p.fails) {
		t.Errorf("claimed without knowing whose it is: %v", err)
	}
}

// follower collects the orphans of a node, and takes them over at once if it wants.
type follower struct {
	mu    sync.Mutex
	found []string
	err   error
}

func follow(ctx context.Context, all *sync.WaitGroup, o *poolstate.Owners, take func(key string)) *follower {
	w := &follower{}
	all.Go(func() {
		w.err = o.Orphans(ctx, func(key string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.found = append(w.found, key)
			if take != nil {
				take(key)
			}
		})
	})
	return w
}

func (w *follower) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(slices.Values(w.found))
}

func TestOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		p := newPool("a", "b", "c")
		for i := range 60 {
			p.owners[fmt.Sprintf("shop/x/%02d", i)] = []outboard.NodeID{"a", "b", "c"}[i%3]
		}
		p.owners["other/x/1"] = "c"
		p.over["shop/x/02"] = true // which was c's
		a, b := p.node("a"), p.node("b")
		if err := a.Claim(ctx, "shop/x/00"); err != nil {
			t.Fatal(err)
		}
		take := func(o *poolstate.Owners, self outboard.NodeID) func(string) {
			return func(key string) {
				if err := o.Claim(ctx, key); err != nil {
					t.Error(err)
				}
				p.record(key, self)
			}
		}
		onA, onB := follow(ctx, &running, a, take(a, "a")), follow(ctx, &running, b, take(b, "b"))
		synctest.Wait()
		// At first each takes what its process of before left, but for what it runs already.
		if a, b := onA.all(), onB.all(); len(a) != 19 || a[0] != "shop/x/03" || len(b) != 20 || b[0] != "shop/x/01" {
			t.Errorf("of the processes before: %v and %v", a, b)
		}
		p.set("a", "b")
		synctest.Wait()
		got := slices.Sorted(slices.Values(append(onA.all(), onB.all()...)))
		if len(slices.Compact(slices.Clone(got))) != len(got) || len(got) != 19+20+19 {
			t.Errorf("%d are offered, of which %d differ", len(got), len(slices.Compact(slices.Clone(got))))
		}
		if slices.Contains(got, "other/x/1") || slices.Contains(got, "shop/x/02") {
			t.Errorf("another tenant's, or one that has ended, is offered: %v", got)
		}
		if takenByA := len(onA.all()) - 19; takenByA < 3 || takenByA > 16 {
			t.Errorf("a takes %d of 19", takenByA)
		}
		time.Sleep(time.Minute)
		if again := len(onA.all()) + len(onB.all()); again != len(got) {
			t.Errorf("%d more are offered", again-len(got))
		}
		cancel()
		running.Wait()
		if !errors.Is(onA.err, context.Canceled) {
			t.Error(onA.err)
		}
	})
}

// What the node that comes first does not take over goes to the next.
func TestOrphansAreNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		p := newPool("a", "b", "c")
		var want []string
		for i := range 20 {
			key := fmt.Sprintf("shop/x/%02d", i)
			p.owners[key] = "c"
			want = append(want, key)
		}
		onA := follow(ctx, &running, p.node("a"), func(key string) { p.record(key, "a") })
		idle := follow(ctx, &running, p.node("b"), nil) // it takes nothing over
		synctest.Wait()
		p.set("a", "b")
		synctest.Wait()
		first := len(onA.all())
		if first == 0 || first == len(want) || first+len(idle.all()) != len(want) {
			t.Errorf("first %d and %d are offered", first, len(idle.all()))
		}
		time.Sleep(time.Minute)
		if diff := cmp.Diff(want, onA.all()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		cancel()
		running.Wait()
	})
}

// Executions that have ended are read once, however often nodes leave; and a log that
// does not answer is told.
func TestOrphansReadLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var running sync.WaitGroup
		p := newPool("a", "b", "c", "d")
		for i := range 100 {
			key := fmt.Sprintf("shop/x/%02d", i)
			p.owners[key], p.over[key] = "b", true
		}
		w := follow(ctx, &running, p.node("a"), nil)
		synctest.Wait()
		p.set("a", "b", "c")
		synctest.Wait()
		p.set("a", "b", "c", "d") // a node that joins leaves no execution behind
		synctest.Wait()
		p.mu.Lock()
		if p.reads != 100 {
			t.Errorf("%d reads", p.reads)
		}
		p.fails = errors.New("no log")
		p.mu.Unlock()
		p.set("a", "c", "d")
		running.Wait()
		if !errors.Is(w.err, p.fails) {
			t.Errorf("got %v, want %v", w.err, p.fails)
		}
	})
}

// An execution that a node lost to another one and did not release has no owner when that one
// leaves.
func TestLostAndOrphaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		p := newPool("a", "b")
		o := p.node("a")
		for _, key := range []string{"shop/x/1", "shop/x/2", "shop/x/3"} {
			if err := o.Claim(ctx, key); err != nil {
				t.Fatal(err)
			}
			p.record(key, "a")
		}
		w := follow(ctx, &running, o, nil)
		synctest.Wait()
		p.record("shop/x/1", "b") // which did not see a for a while
		p.record("shop/x/3", "b")
		if err := o.Claim(ctx, "shop/x/3"); !errors.Is(err, poolstate.ErrOwned) {
			t.Errorf("took it from a node that lives: %v", err)
		}
		p.set("a")
		synctest.Wait()
		if diff := cmp.Diff([]string{"shop/x/1", "shop/x/3"}, w.all()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		cancel()
		running.Wait()
	})
}
