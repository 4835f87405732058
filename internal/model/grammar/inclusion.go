package grammar

import (
	"maps"
	"regexp/syntax"
	"slices"
	"strings"
)

// checkIncludes returns an error unless the pattern beside a format matches each text of the format, whose
// expression is n. Zod writes such patterns.
func checkIncludes(c *compiler, o *object, path string, n node) error {
	text, _ := o.values["pattern"].(string)
	at := step(path, "pattern")
	re, err := parsePattern(text)
	if err == nil && positions(re) > maxPositions {
		err = patternError("it is too long")
	}
	if err != nil {
		return refuse(at, "%q is not supported: %w; leave it out, for the format is obeyed", text, err)
	}
	program, err := syntax.Compile(re.Simplify())
	if err != nil {
		return refuse(at, "%q is not supported: %w", text, err)
	}
	a := &automaton{program: program, states: map[string][]uint32{}, steps: map[transition]string{}}
	ends := a.run(n, set{a.closure([]uint32{uint32(program.Start)}): true}) //nolint:gosec // an index
	if err := c.charge(64*len(a.steps), path); err != nil || a.full {
		return errTooLarge(at)
	}
	for state := range ends {
		if !a.accepts(state) {
			return refuse(at, "it does not match all texts of the format %q as they are written here: leave one of the two out", o.values["format"])
		}
	}
	return nil
}

// An automaton executes a regular expression on all texts of an expression at once (subset
// construction; Thompson 1968). A state is the key of a set of instructions.
type automaton struct {
	program *syntax.Prog
	states  map[string][]uint32
	steps   map[transition]string
	full    bool // it has more than maxTransitions
}

type (
	set        = map[string]bool
	transition struct {
		from string
		r    rune
	}
)

// maxTransitions bounds the transitions of an automaton.
const maxTransitions = 1 << 16

// run returns the states in which the texts of an expression end that begin in the given states.
func (a *automaton) run(n node, from set) set {
	switch n := n.(type) {
	case literal:
		for _, r := range string(n) {
			from = a.stepAll(from, []rune{r, r})
		}
	case charset:
		return a.stepAll(from, classRanges(n))
	case sequence:
		for _, part := range n {
			from = a.run(part, from)
		}
	case choice:
		ends := set{}
		for _, option := range n {
			maps.Copy(ends, a.run(option, from))
		}
		return ends
	case repeated:
		return a.runRepeated(n, from)
	}
	return from
}

func (a *automaton) runRepeated(n repeated, from set) set {
	ends := set{}
	for i := range n.max + 1 {
		if i >= n.min {
			maps.Copy(ends, from)
		}
		if i < n.max {
			from = a.run(n.node, from)
		}
	}
	return ends
}

// classRanges returns the ranges of a set of characters of a format.
func classRanges(class charset) []rune {
	re, err := syntax.Parse(string(class), syntax.ClassNL)
	if err != nil || re.Op != syntax.OpCharClass && re.Op != syntax.OpLiteral {
		panic("the set " + string(class) + " of a format") //nolint:forbidigo // formats are constants
	}
	if re.Op == syntax.OpLiteral {
		return []rune{re.Rune[0], re.Rune[0]}
	}
	return re.Rune
}

func (a *automaton) stepAll(from set, ranges []rune) set {
	ends := set{}
	for state := range from {
		for i := 0; i < len(ranges); i += 2 {
			for r := ranges[i]; r <= ranges[i+1]; r++ {
				ends[a.step(state, r)] = true
			}
		}
	}
	return ends
}

func (a *automaton) step(from string, r rune) string {
	t := transition{from, r}
	if to, known := a.steps[t]; known || a.full {
		return to
	}
	var next []uint32
	for _, pc := range a.states[from] {
		if i := &a.program.Inst[pc]; i.Op != syntax.InstMatch && i.MatchRune(r) {
			next = append(next, i.Out)
		}
	}
	to := a.closure(next)
	a.steps[t] = to
	a.full = len(a.steps) > maxTransitions
	return to
}

// closure returns the state of the instructions that are reached without a character: those that match
// a character, or the end.
func (a *automaton) closure(pcs []uint32) string {
	seen := map[uint32]bool{}
	var reached []uint32
	for len(pcs) > 0 {
		pc := pcs[len(pcs)-1]
		pcs = pcs[:len(pcs)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		switch i := &a.program.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			pcs = append(pcs, i.Out, i.Arg)
		case syntax.InstCapture, syntax.InstNop:
			pcs = append(pcs, i.Out)
		case syntax.InstFail, syntax.InstEmptyWidth: // a pattern has no assertions here
		default:
			reached = append(reached, pc)
		}
	}
	slices.Sort(reached)
	var key strings.Builder
	for _, pc := range reached {
		key.WriteRune(rune(pc)) //nolint:gosec // below maxPositions and a few
	}
	a.states[key.String()] = reached
	return key.String()
}

func (a *automaton) accepts(state string) bool {
	return slices.ContainsFunc(a.states[state], func(pc uint32) bool { return a.program.Inst[pc].Op == syntax.InstMatch })
}
