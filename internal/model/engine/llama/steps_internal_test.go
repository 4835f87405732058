package llama

import (
	"runtime"
	"sync"
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

// Sequences that wait start one after the other, also if no sequence is submitted after them.
func TestWaitingSequencesStart(t *testing.T) {
	m := loadLayers(t, engine.Options{Threads: 1, Sequences: 1})
	var others sync.WaitGroup
	generate := func(emit func(engine.Token) error) {
		if _, err := m.Generate(t.Context(), engine.Generation{Prompt: longPrompt, MaxTokens: 2, LogProbs: -1}, emit); err != nil {
			t.Error(err)
		}
	}
	begun := sync.OnceFunc(func() {
		for range 3 {
			others.Go(func() { generate(func(engine.Token) error { return nil }) })
		}
		for m.Stats().Waiting < 3 {
			runtime.Gosched()
		}
	})
	generate(func(engine.Token) error { begun(); return nil })
	others.Wait()
}
