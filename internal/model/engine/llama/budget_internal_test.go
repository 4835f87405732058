package llama

import (
	"testing"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// TestCacheBudgetFollowsUse evicts a sequence: the budget shrinks to what is always kept, and grows
// by the state that a prompt lacks because it was evicted, in the prompt's scope alone.
func TestCacheBudgetFollowsUse(t *testing.T) {
	const least, most, block = 100, 1000, engine.PrefixBlock
	tokens := make([]int32, 8*block)
	b := newCacheBudget(least, most)
	b.recordEviction(engine.PrefixHashes("a", tokens, 100))
	for _, step := range []struct {
		scope   string
		prompt  []int32
		matched int
		want    int
	}{
		{"b", tokens, 0, least},
		{"a", []int32{1, 2, 3}, 0, least},
		{"a", tokens, 8 * block, least},
		{"a", tokens[:3*block], block, least + 2*block},
		{"a", append(tokens[:8*block:8*block], 7, 7, 7), 0, least + 10*block},
	} {
		if b.recordPrompt(step.scope, step.prompt, step.matched); b.cells != step.want {
			t.Errorf("a prompt of %d tokens in %q, %d matched: the budget is %d, want %d", len(step.prompt), step.scope, step.matched, b.cells, step.want)
		}
	}
	for range 20 {
		b.recordPrompt("a", tokens, 0)
	}
	if b.cells != most {
		t.Errorf("the budget grew to %d of %d", b.cells, most)
	}
	for i := range int32(100) {
		tokens[0] = i + 1
		b.recordEviction(engine.PrefixHashes("a", tokens, 100))
	}
	if b.cells != least {
		t.Errorf("the budget shrank to %d, not to %d", b.cells, least)
	}
	for i := range int32(2 * maxEvicted) {
		tokens[0] = i
		b.recordEviction(engine.PrefixHashes("a", tokens, 1))
	}
	if len(b.evicted) != maxEvicted || len(b.order) != maxEvicted {
		t.Errorf("%d and %d evicted beginnings are kept, not %d", len(b.evicted), len(b.order), maxEvicted)
	}
}
