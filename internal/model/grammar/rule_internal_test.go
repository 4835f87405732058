package grammar

import (
	"fmt"
	"testing"
)

// counted counts how often it is evaluated.
type counted struct {
	node
	evaluated *int
}

func (c counted) ends(rules map[string]bool) bool {
	*c.evaluated++
	return c.node.ends(rules)
}

// TestFiniteIsLinear: rules that form chains, in either direction, are evaluated a few times each.
func TestFiniteIsLinear(t *testing.T) {
	const n = 1000
	for name, next := range map[string]int{"definitions": -1, "references": 1} {
		evaluated := 0
		var rules []rule
		for i := range n {
			r := rule{name: fmt.Sprint(i), node: counted{ref(fmt.Sprint(i + next)), &evaluated}}
			if i+next < 0 || i+next == n {
				r.node = literal("x")
			}
			rules = append(rules, r)
		}
		known, err := finite(rules)
		if err != nil || len(known) != n {
			t.Errorf("%s: %d of %d rules are finite, %v", name, len(known), n, err)
		}
		if evaluated > 4*n {
			t.Errorf("%s: %d rules were evaluated %d times", name, n, evaluated)
		}
	}
}

// TestZigzagIsRefused: references that lead back and forth need more passes than are made.
func TestZigzagIsRefused(t *testing.T) {
	const n = 4 * maxPasses
	rules := make([]rule, n)
	at := func(i int) int { // from the middle outwards, on alternating sides
		if i%2 == 0 {
			return n/2 + i/2
		}
		return n/2 - 1 - i/2
	}
	for i := range n {
		rules[at(i)] = rule{name: fmt.Sprint(i), node: ref(fmt.Sprint(i + 1))}
	}
	rules[at(n-1)].node = literal("x")
	if _, err := finite(rules); err == nil {
		t.Error("it was not refused")
	}
}
