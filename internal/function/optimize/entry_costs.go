package optimize

import "slices"

// maxUnchecked is how many instructions a function that is entered without a check may execute
// outside of its loops, its callees included.
const maxUnchecked = 2048

// uncheckedCandidate is a function whose entry may need no check.
type uncheckedCandidate struct {
	function uint32
	entryCost
	callees []uint32 // each once; imported functions among them
}

// callGraph decides which functions are entered without a check: functions that execute at most
// maxUnchecked instructions outside of their loops (which have checks), and whose callees are
// either such functions or have a check. So every cycle of the call graph contains a check. Callers
// are charged for a function without one.
//
// The call graph is evaluated bottom-up, in topological order (Kahn, Comm. ACM 5, 1962). Where only
// cycles are left, the candidates with the most callers keep their checks. In Go's code these are
// the functions that grow the stack or panic: everything calls them, and nothing often.
type callGraph struct {
	candidates []uncheckedCandidate
	index      map[uint32]int // of a candidate that is not decided
	callers    [][]int        // of each candidate: candidates that call it
	waiting    []int          // of each candidate: callees that are not decided
	ready      []int          // candidates whose callees are decided
	costs      []entryCost    // the result, by function
}

// assignEntryCosts scans all functions once and fills the scanner's entryCosts.
func (e *emitter) assignEntryCosts() error {
	g := callGraph{index: map[uint32]int{}, costs: e.scanner.entryCosts}
	err := e.scanBodies(func(f int, _ []byte) {
		entry := e.scanner.checks[0]
		if !entry.needed || entry.upper > maxUnchecked {
			return
		}
		g.index[uint32(f)] = len(g.candidates)
		g.candidates = append(g.candidates, uncheckedCandidate{uint32(f), entryCost{entry.upper, entry.lower}, slices.Clone(e.scanner.callees)})
	})
	if err == nil {
		g.resolve()
	}
	return err
}

func (g *callGraph) resolve() {
	g.link()
	for len(g.index) > 0 {
		for len(g.ready) > 0 {
			n := g.ready[len(g.ready)-1]
			g.ready = g.ready[:len(g.ready)-1]
			if _, open := g.index[g.candidates[n].function]; open {
				g.evaluate(n)
				g.decide(n)
			}
		}
		g.breakCycles()
	}
}

// link counts the undecided callees of each candidate.
func (g *callGraph) link() {
	g.callers, g.waiting = make([][]int, len(g.candidates)), make([]int, len(g.candidates))
	for n, c := range g.candidates {
		slices.Sort(c.callees)
		for _, f := range slices.Compact(slices.Clone(c.callees)) {
			if callee, ok := g.index[f]; ok {
				g.callers[callee] = append(g.callers[callee], n)
				g.waiting[n]++
			}
		}
		if g.waiting[n] == 0 {
			g.ready = append(g.ready, n)
		}
	}
}

// evaluate sums up a candidate whose callees are decided.
func (g *callGraph) evaluate(n int) {
	c := g.candidates[n]
	upper := c.upper
	for _, f := range c.callees {
		upper += g.costs[f].upper
	}
	if upper = max(upper, 1); upper <= maxUnchecked {
		g.costs[c.function] = entryCost{upper, max(c.lower, (upper+undercountLimit-1)/undercountLimit)}
	}
}

// decide removes a candidate from the graph.
func (g *callGraph) decide(n int) {
	delete(g.index, g.candidates[n].function)
	for _, caller := range g.callers[n] {
		if g.waiting[caller]--; g.waiting[caller] == 0 {
			g.ready = append(g.ready, caller)
		}
	}
}

// breakCycles decides that candidates keep their checks: the candidates with at least half as many
// callers among the candidates as the one with the most. So the largest number of callers halves
// each time, and there are at most as many rounds as it has bits.
func (g *callGraph) breakCycles() {
	most := 0
	callers := make(map[int]int, len(g.index))
	for _, n := range g.index {
		for _, caller := range g.callers[n] {
			if _, open := g.index[g.candidates[caller].function]; open {
				callers[n]++
			}
		}
		most = max(most, callers[n])
	}
	var kept []int
	for n, count := range callers {
		if 2*count >= most {
			kept = append(kept, n)
		}
	}
	slices.Sort(kept)
	for _, n := range kept {
		g.decide(n)
	}
}
