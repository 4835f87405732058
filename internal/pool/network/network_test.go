package network

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// world is a pool of nodes on a virtual clock.
type world struct {
	peers  []Peer
	bytes  map[outboard.NodeID]int
	probed map[outboard.NodeID]map[outboard.NodeID]int
	links  map[outboard.NodeID][]client.Link
}

func newWorld(nodes int) *world {
	w := &world{bytes: map[outboard.NodeID]int{}, probed: map[outboard.NodeID]map[outboard.NodeID]int{}, links: map[outboard.NodeID][]client.Link{}}
	for i := range nodes {
		id := outboard.NodeID(fmt.Sprintf("node-%03d", i))
		w.peers = append(w.peers, Peer{ID: id, Lends: i%2 == 0})
		w.probed[id] = map[outboard.NodeID]int{}
	}
	return w
}

// run runs the probers of all nodes for a while. It must be called in a bubble of synctest, whose
// scheduler runs one goroutine at a time only where they wait: the maps have a lock of their own
// by channel.
func (w *world) run(t *testing.T, length time.Duration, budget outboard.Bytes) {
	t.Helper()
	lock := make(chan struct{}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	done := make(chan struct{})
	for i := range w.peers {
		self := w.peers[i].ID
		p := New(Options{
			Self: self, Budget: budget,
			Peers: func() []Peer {
				var others []Peer
				for _, p := range w.peers {
					if p.ID != self {
						others = append(others, p)
					}
				}
				return others
			},
			Probe: func(_ context.Context, p Peer, budget int) (Sample, error) {
				time.Sleep(time.Millisecond)
				lock <- struct{}{}
				defer func() { <-lock }()
				w.bytes[self] += budget
				w.probed[self][p.ID]++
				return Sample{RTTs: []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond}, Forward: 1e9, Backward: 2e9, Sent: 100, Resent: 1, Bytes: budget}, nil
			},
			Publish: func(_ context.Context, links []client.Link, _ time.Duration) error {
				lock <- struct{}{}
				defer func() { <-lock }()
				w.links[self] = links
				return nil
			},
		})
		go func() {
			_ = p.Run(ctx, func() {})
			done <- struct{}{}
		}()
	}
	for range w.peers {
		<-done
	}
}

// A node's probes cost the same in a pool of 100 nodes as in one of 10, and stay within the
// budget; every node with devices is probed by somebody.
func TestCostIndependentOfPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minutes = 6
		budget := outboard.Bytes(600_000)
		cost := map[int]int{}
		for _, nodes := range []int{10, 100} {
			w := newWorld(nodes)
			w.run(t, minutes*time.Minute, budget)
			seen := map[outboard.NodeID]bool{}
			for id, bytes := range w.bytes {
				cost[nodes] = max(cost[nodes], bytes)
				if bytes > minutes*int(budget)*11/10 {
					t.Errorf("%d nodes: %s spent %d bytes in %d minutes, more than %d each", nodes, id, bytes, minutes, budget)
				}
				if n := len(w.probed[id]); n > Peers+Rotating*(minutes/5+1) {
					t.Errorf("%d nodes: %s probed %d nodes", nodes, id, n)
				}
				if n := len(w.links[id]); n == 0 || n > Peers+Rotating*3 {
					t.Errorf("%d nodes: %s published %d links", nodes, id, n)
				}
				for to := range w.probed[id] {
					seen[to] = true
				}
			}
			for _, p := range w.peers {
				if p.Lends && !seen[p.ID] {
					t.Errorf("%d nodes: nobody probed %s, which has devices", nodes, p.ID)
				}
			}
		}
		ratio := float64(cost[100]) / float64(cost[10])
		t.Logf("cost ratio: %.3f", ratio) // make bench-plan reads it
		if ratio > 1.1 || ratio < 0.9 {
			t.Errorf("a node's probes cost %.2f times as much in 100 nodes as in 10", ratio)
		}
	})
}

func TestNoBudgetNoProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		w.run(t, 10*time.Minute, 0)
		if len(w.bytes) != 0 {
			t.Errorf("probes without a budget: %v", w.bytes)
		}
	})
}

func TestEstimate(t *testing.T) {
	var e estimate
	now := time.Unix(1000, 0)
	for i := range 20 {
		e.add(&Sample{RTTs: []time.Duration{time.Duration(100 + i)}, Forward: float64(1000 * (i + 1)), Sent: 10, Resent: uint64(i % 2)}, now)
	}
	l := e.link("a", "b")
	// The last 16: 104 to 119.
	if l.RTT != 111 || l.RTTSpread != 8 || l.MinRTT != 100 || l.Samples != window {
		t.Errorf("link %+v", l)
	}
	if l.Forward != 16000 || l.ForwardSpread != 8000 || l.Backward != 0 || l.Loss != 0.05 {
		t.Errorf("link %+v", l)
	}
	if l.Queueing() != 11 {
		t.Errorf("queueing %v, want 11ns", l.Queueing())
	}
}

// Nodes that share a lease come first, and nodes keep most of their peers when a node comes.
func TestChoose(t *testing.T) {
	w := newWorld(50)
	w.peers[33].Leased = true
	before := choose("me", w.peers, 7)
	if len(before) != Peers {
		t.Fatalf("%d peers, want %d", len(before), Peers)
	}
	found := false
	for _, p := range before {
		found = found || p.ID == "node-033"
		if !p.Lends && !p.Leased {
			t.Errorf("%s has no devices and shares no lease", p.ID)
		}
	}
	if !found {
		t.Error("the node with the lease is not probed")
	}
	after := choose("me", append(w.peers, Peer{ID: "new", Lends: true}), 7)
	changed := 0
	for _, p := range after {
		was := false
		for _, q := range before {
			was = was || p.ID == q.ID
		}
		if !was {
			changed++
		}
	}
	if changed > 2 {
		t.Errorf("%d of %d peers changed when one node came", changed, Peers)
	}
}
