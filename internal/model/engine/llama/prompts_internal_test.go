package llama

import (
	"slices"
	"testing"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// Prompts that arrive later do not wait for all long ones before them: half of each micro-batch is for
// those with the fewest tokens left, the rest goes to the clients in turns.
func TestPromptsShareMicroBatches(t *testing.T) {
	type prompt struct {
		client    string
		tokens    int
		continued int
	}
	for name, c := range map[string]struct {
		prompts []prompt
		want    []int // the tokens of each prompt in the first micro-batch of 64
	}{
		"one":                 {[]prompt{{"a", 1000, 0}}, []int{64}},
		"alike":               {[]prompt{{"a", 1000, 0}, {"a", 1000, 0}}, []int{64, 0}},
		"a short one":         {[]prompt{{"a", 1000, 0}, {"a", 900, 0}, {"a", 10, 0}}, []int{32, 22, 10}},
		"a shorter one":       {[]prompt{{"a", 1000, 0}, {"a", 1000, 0}, {"a", 100, 0}}, []int{32, 0, 32}},
		"the rest":            {[]prompt{{"a", 20, 0}, {"a", 10, 0}}, []int{20, 10}},
		"clients":             {[]prompt{{"a", 10, 0}, {"a", 1000, 0}, {"b", 1000, 0}}, []int{10, 22, 32}},
		"generated elsewhere": {[]prompt{{"a", 20, 10}, {"a", 40, 0}}, []int{10, 40}},
		"one by one":          {[]prompt{{"a", 20, 20}, {"a", 80, 0}}, []int{1, 63}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scheduler{batch: newBatch(64)}
			defer s.batch.free()
			for _, p := range c.prompts {
				q := newSequence(t.Context(), engine.Generation{Prompt: make([]int32, p.tokens), Continued: p.continued, CacheScope: p.client}, nil)
				s.running = append(s.running, q)
			}
			fillPrompts(s, s.batch.available())
			var got []int
			for _, q := range s.running {
				got = append(got, q.computed)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("tokens %v, want %v", got, c.want)
			}
		})
	}
}
