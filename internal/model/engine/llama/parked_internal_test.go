package llama

import (
	"testing"
)

// TestParkedOnce: of prompts with a common beginning and short ends, the beginning is kept once, not
// with each end.
func TestParkedOnce(t *testing.T) {
	state := func(scope string, shared, own int, end int32) *parkedState {
		tokens := make([]int32, shared)
		for range own {
			tokens = append(tokens, end)
		}
		return &parkedState{scope: scope, tokens: tokens}
	}
	p := parkedStates{most: 1 << 20}
	for i, c := range []struct {
		added *parkedState
		want  int
	}{
		{state("", 256, 16, 1), 1}, {state("", 256, 16, 2), 1}, {state("other", 256, 16, 2), 2}, // another scope
		{state("", 256, 64, 3), 2}, {state("", 256, 64, 4), 3}, // 64 tokens are worth a state
		{state("", 256, 65, 4), 3}, // a longer one
	} {
		if p.add(c.added); len(p.states) != c.want {
			t.Errorf("%d: %d states are kept, want %d", i, len(p.states), c.want)
		}
	}
}
