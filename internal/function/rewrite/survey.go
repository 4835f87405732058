package rewrite

import "slices"

// maxFree is how many instructions a function that is entered without a check may take
// outside of its loops, with all that it calls.
const maxFree = 2048

// A candidate is a function whose entry could do without a check.
type candidate struct {
	function int
	toll
	callees []uint32
}

// survey reads all functions once, and finds those whose entries need no checks: they
// are soon done but for their loops, which have checks of their own, and what they call
// is of their kind or has a check. So no function comes back to itself without a
// check. Who calls them is charged for them.
func (e *emitter) survey() error {
	var candidates []candidate
	open := map[uint32]bool{} // those that are not decided
	err := e.bodies(func(i int, _ []byte) {
		if entry := e.w.checks[0]; entry.needed && entry.all <= maxFree {
			candidates = append(candidates, candidate{i, toll{entry.all, entry.certain}, slices.Clone(e.w.callees)})
			open[uint32(i)] = true
		}
	})
	for len(candidates) > 0 {
		rest := e.decide(candidates, open)
		if len(rest) == len(candidates) {
			cut(rest, open)
		}
		candidates = rest
	}
	return err
}

// cut decides that functions keep their checks so that others can do without: where all
// that is left call each other, those that most of them call. In Go's code these are the
// ones that grow the stack or panic, which everything calls and nothing often.
func cut(rest []candidate, open map[uint32]bool) {
	callers, most := map[uint32]int{}, 0
	for _, c := range rest {
		slices.Sort(c.callees)
		for _, f := range slices.Compact(slices.Clone(c.callees)) {
			if open[f] {
				callers[f]++
				most = max(most, callers[f])
			}
		}
	}
	for f, n := range callers {
		if 2*n >= most {
			delete(open, f)
		}
	}
}

// decide decides on the candidates whose callees are decided, and returns the rest.
func (e *emitter) decide(candidates []candidate, open map[uint32]bool) []candidate {
	var rest []candidate
	for _, c := range candidates {
		all, known := e.total(c, open)
		switch {
		case !open[uint32(c.function)]:
			continue
		case !known:
			rest = append(rest, c)
			continue
		case all <= maxFree:
			e.w.free[c.function] = toll{all, max(c.certain, (all+coarseness-1)/coarseness)}
		}
		delete(open, uint32(c.function))
	}
	return rest
}

// total is what a candidate takes at most, and whether it is known yet.
func (e *emitter) total(c candidate, open map[uint32]bool) (all int64, known bool) {
	all = c.all
	for _, f := range c.callees {
		if open[f] {
			return 0, false
		}
		all += e.w.free[f].all
	}
	return max(all, 1), true
}
