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
	order []int // the steps by descending rank
}

func newEvaluator(p *Problem) *evaluator {
	e := &evaluator{Problem: p, order: make([]int, len(p.Steps))}
	rank := ranks(p.Steps)
	for i := range e.order {
		e.order[i] = i
	}
	// A step's rank is at least that of its consumers, and the sort is stable: so the
	// order is topological.
	slices.SortStableFunc(e.order, func(a, b int) int { return cmp.Compare(rank[b], rank[a]) })
	return e
}

// ranks returns the upward rank of each step (HEFT without communication): the length of the
// longest path from its start to the end of the graph.
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

// runs returns a step's execution time on a node.
func (e *evaluator) runs(step, node int) time.Duration {
	slower := e.Nodes[node].Slower
	if slower == 0 {
		slower = 1
	}
	return time.Duration(float64(e.Steps[step].Runs()) * slower)
}

// estimate is a list scheduler: each step, by descending rank, gets the slot of its node
// that is free first. Values are copied as soon as they exist, and links are not shared.
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

// first returns the index of the slot that is free first.
func first(free []time.Duration) int {
	best := 0
	for i, t := range free {
		if t < free[best] {
			best = i
		}
	}
	return best
}

// inputs returns when a step's inputs are on its node.
func (e *evaluator) inputs(step int, node []int, out *Estimate) (ready time.Duration) {
	to := node[step]
	if len(e.Steps[step].Inputs) == 0 && to != e.Origin {
		out.Crossing += e.Input
		return e.Link(e.Origin, to).transferTime(e.Input)
	}
	for _, in := range e.Steps[step].Inputs {
		at := out.Steps[in.From].End
		if from := node[in.From]; from != to {
			out.Crossing += in.Bytes
			at += e.Link(from, to).transferTime(in.Bytes)
		}
		ready = max(ready, at)
	}
	return ready
}

// slots returns the times at which each node's slots become free. A node whose memory does
// not suffice for all its slots has fewer.
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

// arenas adds up the bytes in each node's arena: a value lies once on the node of its
// producer, and once for each consumer on another node.
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

// bestSingle returns the best assignment of all steps to one node.
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
