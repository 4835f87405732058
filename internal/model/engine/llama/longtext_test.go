package llama_test

import (
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
)

// A text that is longer than the longest tokens in the whole context is refused before the library
// splits it: megabytes would keep a processor busy for half a minute.
func TestTextsBeyondTheContext(t *testing.T) {
	m := load(t, enginetest.WriteModel(t, enginetest.Oracle().Builder()), engine.Options{Threads: 1, Sequences: 1})
	defer func() { _ = m.Close() }()
	long := strings.Repeat("the ", 20_000)
	if _, err := m.Tokenize(t.Context(), engine.Text{Content: long, Bounded: true}); outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), "at least") {
		t.Errorf("a long text: %v", err)
	}
	for name, text := range map[string]engine.Text{"not bounded": {Content: long}, "short": {Content: long[:4000], Bounded: true}} {
		if tokens, err := m.Tokenize(t.Context(), text); err != nil || len(tokens) < 4000 {
			t.Errorf("%s: %d tokens, %v", name, len(tokens), err)
		}
	}
}
