package llama

import (
	"testing"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// Each token is followed by the end of its step, the last one before its generation ends or after it.
func TestAfterSteps(t *testing.T) {
	m := loadLayers(t, engine.Options{Threads: 1, Sequences: 1})
	emitted, steps := 0, 0
	stepped := make(chan struct{}, 1)
	m.AfterSteps(func() {
		if steps < emitted {
			steps++
		}
		if steps == 5 {
			close(stepped)
		}
		if steps != emitted {
			t.Errorf("%d tokens in %d steps", emitted, steps)
		}
	})
	if _, err := m.Generate(t.Context(), engine.Generation{Prompt: longPrompt, MaxTokens: 5, LogProbs: -1}, func(engine.Token) error {
		emitted++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	<-stepped
}
