package placement

import (
	"cmp"
	"math"
	"time"

	"github.com/outboard-run/outboard"
)

// Node is a node on which steps can run.
type Node struct {
	ID outboard.NodeID
	// Slots is the number of steps that run at the same time.
	Slots int
	// Memory bounds steps and arena together; 0 means no bound.
	Memory outboard.Bytes
	// Fetch is the time to fetch each artifact that the node does not have.
	Fetch map[string]time.Duration
	// Slower is the factor by which steps take longer than recorded; 0 means 1.
	Slower float64
}

// Link is the network path from one node to another.
type Link struct {
	Latency time.Duration
	// Bandwidth is in bytes per second; 0 means unlimited.
	Bandwidth outboard.Bytes
}

// transferTime returns the time to copy a value over the link.
func (l Link) transferTime(size outboard.Bytes) time.Duration {
	if l.Bandwidth == 0 {
		return l.Latency
	}
	return l.Latency + time.Duration(float64(size)/float64(l.Bandwidth)*float64(time.Second))
}

// Problem is the input of Decide: steps, nodes and links.
type Problem struct {
	Steps []Step
	Nodes []Node
	// Link returns the link between two different nodes, by index.
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

// Estimate is the predicted cost of an assignment.
type Estimate struct {
	// Completion is when the last step ends.
	Completion time.Duration
	// Crossing is the number of bytes that are copied between nodes.
	Crossing outboard.Bytes
	// Nodes is the number of nodes that are used.
	Nodes int
	// Fits reports whether the memory suffices.
	Fits bool
	// Steps has one entry for each step.
	Steps []Timing
}

// Timing is when a step would run, and what delays it.
type Timing struct {
	Start, End time.Duration
	// Inputs, Fetched and Slot are when the step's inputs are on its node, when its artifact is,
	// and when a slot is free. Start is the latest of them.
	Inputs, Fetched, Slot time.Duration
}

// better reports whether a is preferred to b: first by Fits, then by the smaller
// Completion, Crossing and Nodes.
func (a *Estimate) better(b *Estimate) bool { return a.compare(b) < 0 }

func (a *Estimate) compare(b *Estimate) int {
	if a.Fits != b.Fits {
		return map[bool]int{true: -1, false: 1}[a.Fits]
	}
	return cmp.Or(
		cmp.Compare(a.Completion, b.Completion), cmp.Compare(a.Crossing, b.Crossing), cmp.Compare(a.Nodes, b.Nodes),
	)
}

// Decision assigns each step to a node.
type Decision struct {
	// Node is the index of each step's node.
	Node []int
	Estimate
	// Together is the estimate for all steps on the best single node, for comparison.
	Together Estimate
	// Exact reports whether the search was exhaustive.
	Exact bool
	// Why has one entry for each step.
	Why []Why
}

// exactLimit is the number of assignments up to which the search is exhaustive.
const exactLimit = 4096

// Decide assigns the steps to nodes.
func Decide(p Problem) (Decision, error) {
	if err := p.check(); err != nil {
		return Decision{}, err
	}
	e := newEvaluator(&p)
	single := e.bestSingle()
	s := search{e: e, best: single, estimate: e.estimate(single)}
	d := Decision{Together: e.estimate(single), Exact: math.Pow(float64(len(p.Nodes)), float64(len(p.Steps))) <= exactLimit}
	if d.Exact {
		s.exhaustive()
	} else {
		s.greedy()
	}
	s.preferSingle(single, &d.Together)
	if !s.estimate.Fits {
		return Decision{}, outboard.Errorf(outboard.Exhausted, "place a workflow", "its steps need more memory than the nodes have")
	}
	d.Node, d.Estimate = s.best, e.estimate(s.best)
	d.Why = e.explain(d.Node, d.Estimate)
	return d, nil
}

// worthwhile is the fraction of the completion time that spreading must save.
const worthwhile = 0.01

// preferSingle puts all steps on one node if spreading them saves next to nothing.
func (s *search) preferSingle(single []int, together *Estimate) {
	saved := together.Completion - s.estimate.Completion
	if together.Fits && float64(saved) < worthwhile*float64(together.Completion) {
		s.best, s.estimate = single, *together
	}
}

// Evaluate estimates the cost of an assignment.
func Evaluate(p Problem, node []int) (Estimate, error) {
	if err := p.check(); err != nil {
		return Estimate{}, err
	}
	if len(node) != len(p.Steps) {
		return Estimate{}, outboard.Errorf(outboard.Invalid, "estimate a placement", "%d nodes for %d steps", len(node), len(p.Steps))
	}
	for _, n := range node {
		if n < 0 || n >= len(p.Nodes) {
			return Estimate{}, outboard.Errorf(outboard.Invalid, "estimate a placement", "there is no node %d", n)
		}
	}
	return newEvaluator(&p).estimate(node), nil
}
