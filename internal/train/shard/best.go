package shard

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// maxStates bounds the combinations of strategies of operators whose outputs are needed at once.
const maxStates = 20_000

// ErrTooWide says that too many outputs of a graph are needed at once.
var ErrTooWide = errors.New("too many outputs are needed at once")

// A path is the best choice of options for the operators up to a certain one.
type path struct {
	value  float64
	option int
	before *path
}

// A frontier has the best path for each combination of options of the operators whose outputs are
// still needed; the key has their options, one byte each.
type frontier struct {
	live  []int // in the order of the operators
	paths map[string]*path
}

// Best returns the plan of a graph over a mesh whose time, with the graph's weight of its memory,
// is least. ErrTooWide says that the search would be too large.
func (m Mesh) Best(g *Graph) (Plan, error) {
	if err := g.check(m); err != nil {
		return Plan{}, err
	}
	p, err := newProblem(m, g)
	if err != nil {
		return Plan{}, err
	}
	f := frontier{paths: map[string]*path{"": {option: -1}}}
	for i := range g.Operators {
		if f, err = p.extend(f, i); err != nil {
			return Plan{}, err
		}
	}
	var best *path
	end := len(g.Operators) - 1
	for _, key := range slices.Sorted(maps.Keys(f.paths)) {
		last := f.paths[key]
		whole := *last
		whole.value += g.value(p.convert(end, p.layout(end, last.option), g.to(m)))
		if best == nil || whole.value < best.value {
			best = &whole
		}
	}
	var chosen []int
	for at := best; at.option >= 0; at = at.before {
		chosen = append(chosen, at.option)
	}
	slices.Reverse(chosen)
	return p.evaluate(chosen), nil
}

// extend returns the frontier behind operator i.
func (p *problem) extend(f frontier, i int) (frontier, error) {
	next := frontier{paths: make(map[string]*path)}
	var keep []int // the places in the key of the operators that are still needed
	for at, operator := range f.live {
		if p.neededBehind(operator, i) {
			keep, next.live = append(keep, at), append(next.live, operator)
		}
	}
	next.live = append(next.live, i)
	// In a fixed order, so that of equally good plans the same one is chosen each time.
	for _, key := range slices.Sorted(maps.Keys(f.paths)) {
		before := f.paths[key]
		kept := make([]byte, 0, len(keep)+1)
		for _, at := range keep {
			kept = append(kept, key[at])
		}
		for option := range p.options[i] {
			value := before.value + p.cost(f, key, i, option)
			k := string(append(kept, byte(option)))
			if old := next.paths[k]; old == nil || value < old.value {
				next.paths[k] = &path{value, option, before}
			}
		}
		if len(next.paths) > maxStates {
			return next, fmt.Errorf("operators[%d] (%s): %w: divide the layer into several", i, p.graph.Operators[i].Name, ErrTooWide)
		}
	}
	return next, nil
}

// cost returns the value that an option of operator i adds to a path.
func (p *problem) cost(f frontier, key string, i, option int) float64 {
	o := p.options[i][option]
	takes := o.takes
	for _, from := range p.inputs[i] {
		before := 0
		if from >= 0 {
			before = int(key[slices.Index(f.live, from)])
		}
		takes.add(p.convert(from, p.layout(from, before), o.input))
	}
	return p.graph.value(takes)
}

// neededBehind reports whether an operator behind i reads the output of operator.
func (p *problem) neededBehind(operator, i int) bool {
	for _, inputs := range p.inputs[i+1:] {
		if slices.Contains(inputs, operator) {
			return true
		}
	}
	return false
}
