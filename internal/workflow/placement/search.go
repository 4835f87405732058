package placement

import (
	"cmp"
	"slices"
)

// search holds the best assignment found so far.
type search struct {
	e        *evaluator
	best     []int
	estimate Estimate
}

// try keeps an assignment if it is better than the best, and reports whether it is.
func (s *search) try(node []int) bool {
	est := s.e.estimate(node)
	if !est.better(&s.estimate) {
		return false
	}
	s.best, s.estimate = slices.Clone(node), est
	return true
}

// exhaustive tries all assignments.
func (s *search) exhaustive() {
	node := make([]int, len(s.e.Steps))
	for {
		s.try(node)
		i := 0
		for i < len(node) && node[i] == len(s.e.Nodes)-1 {
			node[i] = 0
			i++
		}
		if i == len(node) {
			return
		}
		node[i]++
	}
}

// greedy is a local search with two starting points: all steps on one node, and each step
// where it ends first. It moves groups of steps while that improves the estimate.
func (s *search) greedy() {
	groups := s.groups()
	for _, start := range [][]int{s.best, s.earliest()} {
		local := search{e: s.e, best: start, estimate: s.e.estimate(start)}
		local.climb(groups)
		s.try(local.best)
		if len(start) <= steepLimit {
			steep := search{e: s.e, best: start, estimate: s.e.estimate(start)}
			steep.climbSteeply(groups)
			s.try(steep.best)
		}
	}
}

// earliest places one step after another on the node where it ends first.
func (s *search) earliest() []int {
	node := make([]int, len(s.e.Steps))
	for i := range node {
		node[i] = s.e.Origin
	}
	for _, i := range s.e.order {
		bestNode, bestEnd := node[i], s.e.estimate(node).Steps[i].End
		for n := range s.e.Nodes {
			node[i] = n
			if end := s.e.estimate(node).Steps[i].End; end < bestEnd {
				bestNode, bestEnd = n, end
			}
		}
		node[i] = bestNode
	}
	return node
}

// groups returns the sets of steps that are moved as one: each single step, and the
// components that result from contracting the edges in descending order of their bytes.
func (s *search) groups() [][]int {
	var groups [][]int
	member := make([]int, len(s.e.Steps)) // the group that each step is in
	for i := range s.e.Steps {
		groups = append(groups, []int{i})
		member[i] = i
	}
	for _, edge := range s.edges() {
		a, b := member[edge.from], member[edge.to]
		if a == b {
			continue
		}
		merged := append(slices.Clone(groups[a]), groups[b]...)
		for _, i := range merged {
			member[i] = len(groups)
		}
		groups = append(groups, merged)
	}
	return groups
}

type edge struct {
	from, to int
	bytes    uint64
}

func (s *search) edges() (edges []edge) {
	for i := range s.e.Steps {
		for _, in := range s.e.Steps[i].Inputs {
			edges = append(edges, edge{in.From, i, uint64(in.Bytes)})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(b.bytes, a.bytes) })
	return edges
}

// climb makes every move that improves the estimate until none does (first-choice hill climbing).
func (s *search) climb(groups [][]int) {
	for moved := true; moved; {
		moved = false
		for _, g := range groups {
			for n := range s.e.Nodes {
				moved = s.try(with(s.best, g, n)) || moved
			}
		}
	}
}

// with returns an assignment with a group of steps on one node.
func with(node, group []int, n int) []int {
	node = slices.Clone(node)
	for _, i := range group {
		node[i] = n
	}
	return node
}

// steepLimit is the number of steps up to which steepest-ascent hill climbing is affordable.
const steepLimit = 24

// climbSteeply makes the best move until none improves the estimate (steepest-ascent hill
// climbing). It moves groups and pairs of steps, and swaps the nodes of two.
func (s *search) climbSteeply(groups [][]int) {
	for moved := true; moved; {
		from := s.best
		moved = false
		for _, g := range groups {
			for n := range s.e.Nodes {
				moved = s.try(with(from, g, n)) || moved
			}
		}
		moved = s.tryPairs(from) || moved
	}
}

func (s *search) tryPairs(from []int) (moved bool) {
	for a := range from {
		for b := range a {
			swapped := slices.Clone(from)
			swapped[a], swapped[b] = swapped[b], swapped[a]
			moved = s.try(swapped) || moved
			for n := range s.e.Nodes {
				moved = s.try(with(from, []int{a, b}, n)) || moved
			}
		}
	}
	return moved
}
