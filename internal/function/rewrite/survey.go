package rewrite

// maxFree is how many instructions a function without checks may take, with all that
// it calls.
const maxFree = 128

// surveyRounds is how deep functions without checks may call each other.
const surveyRounds = 4

// A candidate is a function that could do without checks.
type candidate struct {
	function int
	cost     int64
	callees  []uint32
}

// survey reads all functions once, and finds those that need no checks: they have no
// loop, call only others of their kind, and are soon done. Who calls them is charged
// for them.
func (e *emitter) survey() error {
	var candidates []candidate
	err := e.bodies(func(i int, _ []byte) {
		if e.w.loops() == 0 && !e.w.opaque && e.w.checks[0].all <= maxFree {
			candidates = append(candidates, candidate{i, e.w.checks[0].all, append([]uint32(nil), e.w.callees...)})
		}
	})
	for range surveyRounds {
		candidates = e.decide(candidates)
	}
	return err
}

// decide decides on the candidates whose callees are decided, and returns the rest.
func (e *emitter) decide(candidates []candidate) []candidate {
	var rest []candidate
	for _, c := range candidates {
		if cost, ok := e.total(c); ok {
			e.w.free[c.function] = int32(cost)
		} else {
			rest = append(rest, c)
		}
	}
	return rest
}

func (e *emitter) total(c candidate) (int64, bool) {
	cost := c.cost
	for _, f := range c.callees {
		if int(f) >= e.m.imported && e.w.free[f] == 0 {
			return 0, false
		}
		cost += int64(e.w.free[f])
	}
	return max(cost, 1), cost <= maxFree
}
