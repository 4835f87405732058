package llama_test

import (
	"slices"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/engine/llama"
	"github.com/outboard-run/outboard/internal/model/gguf"
	"github.com/outboard-run/outboard/internal/need"
)

// load loads a model, and skips the test where this build has no library.
func load(t *testing.T, source engine.Source, o engine.Options) engine.TextModel {
	t.Helper()
	m, err := (llama.Engine{}).Load(t.Context(), source, o)
	need.Require(t, "llama.cpp", outboard.KindOf(err) != outboard.NotFound, "run `make build`")
	if err != nil {
		t.Fatal(err)
	}
	return m.(engine.TextModel)
}

// A generation that goes on in another process has the same tokens, though the library's kernels
// for several tokens round differently than those for one.
func TestContinuedTokensAreTheSame(t *testing.T) {
	shape := gguf.Shape{Layers: 2, Width: 64, FeedForward: 128, Heads: 4, SharedHeads: 2, Context: 512, Type: gguf.Q8_0}
	source := enginetest.WriteModel(t, gguf.Random(shape, 1))
	g := engine.Generation{Prompt: []int32{10, 17, 24, 31}, MaxTokens: 300, LogProbs: -1, Sampling: engine.Sampling{Bias: map[int32]float32{gguf.End: -100}}}
	whole := generate(t, source, g)
	for _, at := range []int{1, 50, 100, 200} {
		rest := g
		rest.Prompt, rest.Continued, rest.MaxTokens = slices.Concat(g.Prompt, whole[:at]), at, g.MaxTokens-at
		if got := generate(t, source, rest); !slices.Equal(got, whole[at:]) {
			t.Errorf("other tokens after the first %d", at)
		}
	}
}

// generate returns the tokens of a newly loaded model.
func generate(t *testing.T, source engine.Source, g engine.Generation) []int32 {
	t.Helper()
	m := load(t, source, engine.Options{Threads: 1, Sequences: 1})
	defer func() { _ = m.Close() }()
	a, err := enginetest.Generate(t.Context(), m, g)
	if err != nil {
		t.Fatal(err)
	}
	return a.IDs()
}

func TestContract(t *testing.T) { enginetest.Text(t, load) }
