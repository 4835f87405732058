package placement_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
	. "github.com/outboard-run/outboard/internal/workflow/placement"
)

const mib = 1 << 20

// nodes are alike, with a link of 1 ms and 100 MiB/s between any two.
func nodes(names ...string) []Node {
	var out []Node
	for _, n := range names {
		out = append(out, Node{ID: outboard.NodeID(n), Slots: 2})
	}
	return out
}

func link(int, int) Link { return Link{Latency: time.Millisecond, Bandwidth: 100 * mib} }

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// fan is a fork and join: a step, a number of consumers, and one that consumes from those.
func fan(width int, work time.Duration, size outboard.Bytes) []Step {
	steps := []Step{{Name: "split", Work: ms(10)}}
	last := Step{Name: "join", Work: ms(10)}
	for i := range width {
		steps = append(steps, Step{Name: fmt.Sprint("work-", i), Work: work, Inputs: []Input{{From: 0, Bytes: size}}})
		last.Inputs = append(last.Inputs, Input{From: i + 1, Bytes: size})
	}
	return append(steps, last)
}

func TestDecide(t *testing.T) {
	slow := nodes("a", "b")
	slow[0].Slower = 3
	cold := nodes("a", "b")
	cold[0].Fetch = map[string]time.Duration{"wasm": ms(500)}
	small := nodes("a", "b")
	small[0].Memory, small[1].Memory = 100*mib, 1000*mib
	for name, c := range map[string]struct {
		problem    Problem
		want       []int
		completion time.Duration
		crossing   outboard.Bytes
	}{
		"a chain stays together": {
			Problem{Steps: []Step{{Work: ms(10)}, {Work: ms(10), Inputs: []Input{{From: 0, Bytes: mib}}}, {Work: ms(10), Inputs: []Input{{From: 1, Bytes: mib}}}}, Nodes: nodes("a", "b"), Link: link},
			[]int{0, 0, 0},
			ms(30), 0,
		},
		"short steps stay together": {
			Problem{Steps: fan(4, ms(2), mib), Nodes: nodes("a", "b"), Link: link},
			[]int{0, 0, 0, 0, 0, 0},
			ms(24), 0,
		},
		"long steps are spread": { // two there and two here; 1 MiB takes 11 ms
			Problem{Steps: fan(4, ms(100), mib), Nodes: nodes("a", "b"), Link: link},
			[]int{0, 0, 0, 1, 1, 1},
			ms(131), 4 * mib,
		},
		"large values stay together": { // each way takes 1 s for 100 MiB
			Problem{Steps: fan(4, ms(100), 100*mib), Nodes: nodes("a", "b"), Link: link},
			[]int{0, 0, 0, 0, 0, 0},
			ms(220), 0,
		},
		"next to nothing is not worth it": { // 219 ms on two nodes
			Problem{Steps: fan(4, ms(100), 98*mib/10), Nodes: nodes("a", "b"), Link: link},
			[]int{0, 0, 0, 0, 0, 0},
			ms(220), 0,
		},
		"a slow node is left": {
			Problem{Steps: fan(1, ms(100), mib), Nodes: slow, Link: link, Input: mib},
			[]int{1, 1, 1},
			ms(131), mib,
		},
		"a cold node is left": {
			Problem{Steps: []Step{{Work: ms(10), Artifact: "wasm"}}, Nodes: cold, Link: link, Input: mib},
			[]int{1},
			ms(21), mib,
		},
		"a large input holds": {
			Problem{Steps: []Step{{Work: ms(10), Artifact: "wasm"}}, Nodes: cold, Link: link, Input: 100 * mib},
			[]int{0},
			ms(510), 0,
		},
		"memory counts": {
			Problem{Steps: []Step{{Work: ms(10), Memory: 200 * mib}}, Nodes: small, Link: link, Input: mib},
			[]int{1},
			ms(21), mib,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Decide(c.problem)
			if err != nil {
				t.Fatal(err)
			}
			perNode := func(node []int) []int { // which of the equal steps goes where does not matter
				counts := make([]int, len(c.problem.Nodes))
				for _, n := range node {
					counts[n]++
				}
				return counts
			}
			if diff := cmp.Diff(perNode(d.Node), perNode(c.want)); diff != "" {
				t.Errorf("%v: %s", d.Node, diff)
			}
			if d.Completion != c.completion || d.Crossing != c.crossing {
				t.Errorf("got %v with %v, want %v with %v\n%v", d.Completion, d.Crossing, c.completion, c.crossing, d)
			}
		})
	}
}

// TestGroupsMove checks that the local search moves steps that exchange large values as
// one group. Copying a value takes a second and a step 200 ms, so that no move of a single
// step helps.
func TestGroupsMove(t *testing.T) {
	const length = 15
	steps := []Step{{Name: "source"}}
	for chain := range 2 {
		for i := range length {
			from, size := chain*length+i, outboard.Bytes(100*mib)
			if i == 0 {
				from, size = 0, 99*mib
			}
			steps = append(steps, Step{Name: fmt.Sprint(chain, "-", i), Work: ms(200), Inputs: []Input{{From: from, Bytes: size}}})
		}
	}
	two := nodes("a", "b")
	two[0].Slots, two[1].Slots = 1, 1
	d, err := Decide(Problem{Steps: steps, Nodes: two, Link: link})
	if err != nil {
		t.Fatal(err)
	}
	if d.Exact || d.Crossing != 99*mib || d.Completion != length*ms(200)+ms(991) || d.Together.Completion != 2*length*ms(200) {
		t.Errorf("got %v", d)
	}
}

func TestMemoryTooSmall(t *testing.T) {
	small := nodes("a", "b")
	small[0].Memory, small[1].Memory = mib, mib
	_, err := Decide(Problem{Steps: []Step{{Memory: 2 * mib}}, Nodes: small, Link: link})
	if outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("got %v", err)
	}
}

// TestMemoryTakesSlots checks that steps whose memory does not fit together run one after
// another.
func TestMemoryTakesSlots(t *testing.T) {
	one := nodes("a")
	p := Problem{Steps: []Step{{Work: ms(10), Memory: mib}, {Work: ms(10), Memory: mib}}, Nodes: one}
	for memory, want := range map[outboard.Bytes]time.Duration{0: ms(10), 2 * mib: ms(10), 2*mib - 1: ms(20)} {
		one[0].Memory = memory
		if d, err := Decide(p); err != nil || d.Completion != want {
			t.Errorf("%v: got %v (%v), want %v", memory, d.Completion, err, want)
		}
	}
}

func TestWhy(t *testing.T) {
	p := Problem{Steps: fan(4, ms(100), mib), Nodes: nodes("harbour", "lighthouse"), Link: link}
	d, err := Decide(p)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range d.Why {
		if w.Step != p.Steps[i].Name || w.Node != p.Nodes[d.Node[i]].ID || len(w.Others) != 1 {
			t.Errorf("got %+v", w)
		}
	}
	got := d.Why[0]
	want := Why{
		Step: "split", Node: "harbour", Start: 0, End: ms(10), WaitsFor: "nothing",
		Others: []Alternative{{Node: "lighthouse", Completion: ms(143), Crossing: 4 * mib, End: ms(11), Fits: true, Reason: "the whole would take 12ms longer"}},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
	const first = "takes 131ms on 2 nodes, 4MiB cross between them; on one node it would take 220ms\n"
	if text := d.String(); len(text) < len(first) || text[:len(first)] != first {
		t.Errorf("got %s", text)
	}
}

func drawProblem(t *rapid.T, most, nodes int) Problem {
	p := Problem{Nodes: make([]Node, rapid.IntRange(1, nodes).Draw(t, "nodes")), Input: outboard.Bytes(rapid.IntRange(0, 4).Draw(t, "input")) * mib}
	for i := range p.Nodes {
		p.Nodes[i] = Node{ID: outboard.NodeID(fmt.Sprint("n", i)), Slots: rapid.IntRange(1, 3).Draw(t, "slots")}
		if rapid.Bool().Draw(t, "cold") {
			p.Nodes[i].Fetch = map[string]time.Duration{"": ms(rapid.IntRange(0, 50).Draw(t, "fetch"))}
		}
	}
	bandwidth := outboard.Bytes(rapid.IntRange(10, 1000).Draw(t, "bandwidth")) * mib
	p.Link = func(int, int) Link { return Link{time.Millisecond, bandwidth} }
	p.Steps = make([]Step, rapid.IntRange(1, most).Draw(t, "steps"))
	for i := range p.Steps {
		p.Steps[i].Work = ms(rapid.IntRange(0, 100).Draw(t, "work"))
		for from := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				p.Steps[i].Inputs = append(p.Steps[i].Inputs, Input{From: from, Bytes: outboard.Bytes(rapid.IntRange(0, 8).Draw(t, "bytes")) * mib})
			}
		}
	}
	return p
}

// TestGreedyAgainstAll compares the local search with the exhaustive one on small graphs.
func TestGreedyAgainstAll(t *testing.T) {
	best, cases := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		p := drawProblem(r, 6, 3)
		got, want := Greedy(p), Exact(p)
		if got.Completion < want.Completion {
			r.Fatalf("greedy takes %v, the best %v", got.Completion, want.Completion)
		}
		if got.Completion > want.Completion+want.Completion/4 {
			r.Fatalf("greedy takes %v, the best %v", got.Completion, want.Completion)
		}
		if cases++; got.Completion == want.Completion {
			best++
		}
	})
	t.Logf("greedy found the best of %d in %d", cases, best)
	if best < cases*9/10 {
		t.Errorf("greedy found the best of %d in %d only", cases, best)
	}
}

// TestNeverWorse checks that a decision takes no longer than all steps on one node, that
// its estimate is Evaluate's, and that no other node for a single step is better.
func TestNeverWorse(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := drawProblem(r, 12, 4)
		d, err := Decide(p)
		if err != nil {
			r.Fatal(err)
		}
		if d.Completion > d.Together.Completion {
			r.Fatalf("takes %v, on one node %v", d.Completion, d.Together.Completion)
		}
		again, err := Evaluate(p, d.Node)
		if err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(again, d.Estimate); diff != "" {
			r.Fatal(diff)
		}
		for _, w := range d.Why {
			for _, o := range w.Others {
				if o.Completion < d.Completion-d.Completion/50 {
					r.Fatalf("step %s on %s would take %v, not %v", w.Step, o.Node, o.Completion, d.Completion)
				}
			}
		}
	})
}

// TestEstimate checks that steps start after their inputs, and that a node never runs more
// steps than it has slots.
func TestEstimate(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := drawProblem(r, 12, 3)
		node := make([]int, len(p.Steps))
		for i := range node {
			node[i] = rapid.IntRange(0, len(p.Nodes)-1).Draw(r, "node")
		}
		est, err := Evaluate(p, node)
		if err != nil {
			r.Fatal(err)
		}
		for i, step := range p.Steps {
			for _, in := range step.Inputs {
				at := est.Steps[in.From].End
				if node[in.From] != node[i] {
					at += time.Millisecond
				}
				if est.Steps[i].Start < at {
					r.Fatalf("step %d starts at %v, its input is there at %v", i, est.Steps[i].Start, at)
				}
			}
			running := 0
			for k := range p.Steps {
				if node[k] == node[i] && est.Steps[k].Start <= est.Steps[i].Start && est.Steps[k].End > est.Steps[i].Start {
					running++
				}
			}
			if running > p.Nodes[node[i]].Slots {
				r.Fatalf("%d steps run on node %d at %v", running, node[i], est.Steps[i].Start)
			}
		}
	})
}

func TestWrongProblems(t *testing.T) {
	for name, p := range map[string]Problem{
		"no nodes": {}, "no link": {Nodes: nodes("a", "b")}, "no slot": {Nodes: []Node{{ID: "a"}}},
		"origin": {Nodes: nodes("a"), Origin: 1}, "steps": {Nodes: nodes("a"), Steps: []Step{{Inputs: []Input{{From: 0}}}}},
	} {
		if _, err := Decide(p); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
	p := Problem{Nodes: nodes("a"), Steps: []Step{{}}}
	for _, node := range [][]int{nil, {1}, {-1}} {
		if _, err := Evaluate(p, node); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%v: got %v", node, err)
		}
	}
}

// BenchmarkDecide decides on a large graph and many nodes.
func BenchmarkDecide(b *testing.B) {
	p := Problem{Steps: fan(50, ms(20), mib), Nodes: nodes("a", "b", "c", "d", "e", "f", "g", "h"), Link: link}
	for b.Loop() {
		if _, err := Decide(p); err != nil {
			b.Fatal(err)
		}
	}
}
