package placement

import (
	"cmp"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// evaluator estimates assignments of one problem.
type evaluator struct {
	*Problem
	order []int // the steps, those first behind which the most is left to do
}

func newEvaluator(p *Problem) *evaluator {
	e := &evaluator{Problem: p, order: make([]int, len(p.Steps))}
	rank := ranks(p.Steps)
	for i := range e.order {
		e.order[i] = i
	}
	// A step has more left behind it than those that take from it, or stands before
	// them.
	slices.SortStableFunc(e.order, func(a, b int) int { return cmp.Compare(rank[b], rank[a]) })
	return e
}

// ranks is for each step how long it takes from its start to the end of the whole, if
// nothing waits.
func ranks(steps []Step) []time.Duration {
	rank := make([]time.Duration, len(steps))
	for i := len(steps) - 1; i >= 0; i-- {
		rank[i] += steps[i].Runs()
		for _, in := range steps[i].Inputs {
			rank[in.From] = max(rank[in.From], rank[i])
		}
	}
	return rank
}

// runs is how long a step takes on a node.
func (e *evaluator) runs(step, node int) time.Duration {
	slower := e.Nodes[node].Slower
	if slower == 0 {
		slower = 1
	}
	return time.Duration(float64(e.Steps[step].Runs()) * slower)
}

// estimate gives each step, in order, the slot of its node that is free first. Values
// cross as soon as they exist, and do not wait for each other.
func (e *evaluator) estimate(node []int) Estimate {
	out := Estimate{Steps: make([]Timing, len(e.Steps)), Fits: true}
	free := e.slots(node, &out)
	for _, i := range e.order {
		n := node[i]
		t := Timing{Inputs: e.inputs(i, node, &out), Fetched: e.Nodes[n].Fetch[e.Steps[i].Artifact]}
		slot := first(free[n])
		t.Slot = free[n][slot]
		t.Start = max(t.Inputs, t.Fetched, t.Slot)
		t.End = t.Start + e.runs(i, n)
		free[n][slot] = t.End
		out.Steps[i] = t
		out.Completion = max(out.Completion, t.End)
	}
	return out
}

// first is the index of the slot that is free first.
func first(free []time.Duration) int {
	best := 0
	for i, t := range free {
		if t < free[best] {
			best = i
		}
	}
	return best
}

// inputs is when a step's inputs are on its node.
func (e *evaluator) inputs(step int, node []int, out *Estimate) (ready time.Duration) {
	to := node[step]
	if len(e.Steps[step].Inputs) == 0 && to != e.Origin {
		out.Crossing += e.Input
		return e.Link(e.Origin, to).takes(e.Input)
	}
	for _, in := range e.Steps[step].Inputs {
		at := out.Steps[in.From].End
		if from := node[in.From]; from != to {
			out.Crossing += in.Bytes
			at += e.Link(from, to).takes(in.Bytes)
		}
		ready = max(ready, at)
	}
	return ready
}

// slots are the times at which each node's slots are free. A node whose memory is not
// enough for all its slots has fewer.
func (e *evaluator) slots(node []int, out *Estimate) [][]time.Duration {
	free := make([][]time.Duration, len(e.Nodes))
	arena, largest := make([]outboard.Bytes, len(e.Nodes)), make([]outboard.Bytes, len(e.Nodes))
	for i := range e.Steps {
		largest[node[i]] = max(largest[node[i]], e.Steps[i].Memory)
	}
	e.arenas(node, arena)
	used := 0
	for n := range e.Nodes {
		slots := e.Nodes[n].Slots
		if limit := e.Nodes[n].Memory; limit > 0 && largest[n]+arena[n] > 0 {
			if arena[n]+largest[n] > limit {
				out.Fits = false
			} else if largest[n] > 0 {
				slots = int(min(outboard.Bytes(slots), (limit-arena[n])/largest[n]))
			}
		}
		free[n] = make([]time.Duration, max(1, slots))
		if slices.Contains(node, n) {
			used++
		}
	}
	out.Nodes = used
	return free
}

// arenas adds up what lies in each node's arena: values are there where they are made,
// once, and where they are taken from another node.
func (e *evaluator) arenas(node []int, arena []outboard.Bytes) {
	made := make([]outboard.Bytes, len(e.Steps))
	for i := range e.Steps {
		for _, in := range e.Steps[i].Inputs {
			made[in.From] = max(made[in.From], in.Bytes)
			if node[in.From] != node[i] {
				arena[node[i]] += in.Bytes
			}
		}
	}
	for i, size := range made {
		arena[node[i]] += size
	}
}

// bestSingle is the best assignment that has all steps on one node.
func (e *evaluator) bestSingle() []int {
	var best []int
	var bestEstimate Estimate
	for n := range e.Nodes {
		node := slices.Repeat([]int{n}, len(e.Steps))
		if est := e.estimate(node); best == nil || est.better(&bestEstimate) {
			best, bestEstimate = node, est
		}
	}
	return best
}
