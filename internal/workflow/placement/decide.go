package placement

import (
	"cmp"
	"math"
	"time"

	"github.com/outboard-run/outboard"
)

// Node is a place for steps.
type Node struct {
	ID outboard.NodeID
	// Slots is how many steps run at a time.
	Slots int
	// Memory is what steps and the arena may take together; 0: it does not matter.
	Memory outboard.Bytes
	// Fetch is how long it takes until the node has an artifact. Of what is not here
	// it has it.
	Fetch map[string]time.Duration
	// Slower is how many times as long a step takes here as was recorded; 0 is 1.
	Slower float64
}

// Link is the way from one node to another.
type Link struct {
	Latency time.Duration
	// Bandwidth is bytes for a second; 0: only the latency counts.
	Bandwidth outboard.Bytes
}

// takes is how long a value is under way.
func (l Link) takes(size outboard.Bytes) time.Duration {
	if l.Bandwidth == 0 {
		return l.Latency
	}
	return l.Latency + time.Duration(float64(size)/float64(l.Bandwidth)*float64(time.Second))
}

// Problem is what Decide decides about.
type Problem struct {
	Steps []Step
	Nodes []Node
	// Link is the way from one node to another, by index. Both are never the same.
	Link func(from, to int) Link
	// Origin is the index of the node that has the workflow's input, and Input its size.
	Origin int
	Input  outboard.Bytes
}

func (p *Problem) check() error {
	if err := Check(p.Steps); err != nil {
		return err
	}
	if len(p.Nodes) == 0 || p.Link == nil && len(p.Nodes) > 1 || p.Origin < 0 || p.Origin >= len(p.Nodes) {
		return outboard.Errorf(outboard.Invalid, "place a workflow", "%d nodes, of which node %d has the input: want one at least, and links between them", len(p.Nodes), p.Origin)
	}
	for i := range p.Nodes {
		if p.Nodes[i].Slots < 1 {
			return outboard.Errorf(outboard.Invalid, "place a workflow", "node %v has no slot", p.Nodes[i].ID)
		}
	}
	return nil
}

// Estimate is what an assignment brings.
type Estimate struct {
	// Completion is when the last step ends.
	Completion time.Duration
	// Crossing is how many bytes go from one node to another.
	Crossing outboard.Bytes
	// Nodes is how many nodes are used.
	Nodes int
	// Fits says whether memory suffices.
	Fits bool
	// Steps has one entry for each step.
	Steps []Timing
}

// Timing is when a step would run, and why not before.
type Timing struct {
	Start, End time.Duration
	// Inputs, Fetched and Slot are when its inputs were on its node, when its artifact
	// was, and when a slot was free. Start is the latest of them.
	Inputs, Fetched, Slot time.Duration
}

// better says whether a is to be preferred to b: what fits, then what is shorter, then
// what moves less, then what needs fewer nodes.
func (a *Estimate) better(b *Estimate) bool { return a.compare(b) < 0 }

func (a *Estimate) compare(b *Estimate) int {
	if a.Fits != b.Fits {
		return map[bool]int{true: -1, false: 1}[a.Fits]
	}
	return cmp.Or(
		cmp.Compare(a.Completion, b.Completion), cmp.Compare(a.Crossing, b.Crossing), cmp.Compare(a.Nodes, b.Nodes),
	)
}

// Decision says which step goes to which node.
type Decision struct {
	// Node is the index of each step's node.
	Node []int
	Estimate
	// Together is the estimate with all steps on the best single node: what spreading
	// them was worth.
	Together Estimate
	// Exact says that all assignments were tried.
	Exact bool
	// Why has one entry for each step.
	Why []Why
}

// exactLimit is how many assignments are tried one after another.
const exactLimit = 4096

// Decide places the steps.
func Decide(p Problem) (Decision, error) {
	if err := p.check(); err != nil {
		return Decision{}, err
	}
	e := newEvaluator(&p)
	alone := e.bestSingle()
	s := search{e: e, best: alone, estimate: e.estimate(alone)}
	d := Decision{Together: e.estimate(alone), Exact: math.Pow(float64(len(p.Nodes)), float64(len(p.Steps))) <= exactLimit}
	if d.Exact {
		s.all()
	} else {
		s.greedy()
	}
	s.gather(alone, &d.Together)
	if !s.estimate.Fits {
		return Decision{}, outboard.Errorf(outboard.Exhausted, "place a workflow", "its steps need more memory than the nodes have")
	}
	d.Node, d.Estimate = s.best, e.estimate(s.best)
	d.Why = e.explain(d.Node, d.Estimate)
	return d, nil
}

// worthwhile is which part of the time must be won for steps to be put apart.
const worthwhile = 0.01

// gather puts all steps on one node if spreading them wins next to nothing.
func (s *search) gather(alone []int, together *Estimate) {
	won := together.Completion - s.estimate.Completion
	if together.Fits && float64(won) < worthwhile*float64(together.Completion) {
		s.best, s.estimate = alone, *together
	}
}

// Evaluate estimates what an assignment brings.
func Evaluate(p Problem, node []int) (Estimate, error) {
	if err := p.check(); err != nil {
		return Estimate{}, err
	}
	if len(node) != len(p.Steps) {
		return Estimate{}, outboard.Errorf(outboard.Invalid, "estimate a placement", "%d places for %d steps", len(node), len(p.Steps))
	}
	for _, n := range node {
		if n < 0 || n >= len(p.Nodes) {
			return Estimate{}, outboard.Errorf(outboard.Invalid, "estimate a placement", "there is no node %d", n)
		}
	}
	return newEvaluator(&p).estimate(node), nil
}
