package llama_test

import (
	"math"
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
	whole := generate(t, source, g).IDs()
	for _, at := range []int{1, 50, 100, 200} {
		rest := g
		rest.Prompt, rest.Continued, rest.MaxTokens = slices.Concat(g.Prompt, whole[:at]), at, g.MaxTokens-at
		if got := generate(t, source, rest).IDs(); !slices.Equal(got, whole[at:]) {
			t.Errorf("other tokens after the first %d", at)
		}
	}
}

// generate returns the answer of a newly loaded model.
func generate(t *testing.T, source engine.Source, g engine.Generation) enginetest.Answer {
	t.Helper()
	m := load(t, source, engine.Options{Threads: 1, Sequences: 1})
	defer func() { _ = m.Close() }()
	return generateOne(t, m, g)
}

// rounding is how much log-probabilities of one computation may differ: llama.cpp's kernels round
// otherwise for several rows than for one, and on other processors.
const rounding = 0.01

// wantSame compares the tokens of greedy generations with their two most likely ones, up to a token
// for which these are as likely as each other, up to rounding.
func wantSame(t *testing.T, got, want enginetest.Answer) {
	t.Helper()
	for i, w := range want.Tokens {
		if i >= len(got.Tokens) {
			t.Errorf("got %v, want %v", got.IDs(), want.IDs())
			return
		}
		g := got.Tokens[i]
		if math.Abs(float64(g.LogProb-w.LogProb)) > rounding {
			t.Errorf("token %d: %d with log-probability %v, want %d with %v", i, g.ID, g.LogProb, w.ID, w.LogProb)
		}
		if g.ID != w.ID {
			if w.Top[0].LogProb-w.Top[1].LogProb > rounding {
				t.Errorf("tokens %v, want %v", got.IDs(), want.IDs())
			}
			return
		}
	}
}

// The state of a prompt whose cells others have needed since comes back from memory, for its client
// alone, and the tokens are those that a new model generates. A model whose limit of memory leaves
// none keeps nothing.
func TestEvictedStatesAreRestored(t *testing.T) {
	shape := gguf.Shape{Layers: 2, Width: 64, FeedForward: 128, Heads: 4, SharedHeads: 2, Context: 512}
	source := enginetest.WriteModel(t, gguf.Random(shape, 1))
	unbounded := load(t, source, engine.Options{Threads: 1, Sequences: 1})
	cells := int64(512 * 2 * 2 * 2 * 16 * 2) // keys and values of layers, heads, dimensions, in float16
	least := unbounded.Info().Memory - cells // what is kept outside the cells has their size here
	if err := unbounded.Close(); err != nil {
		t.Error(err)
	}
	long := func(first int32) []int32 {
		return append([]int32{first}, slices.Repeat([]int32{11, 12, 13, 14}, 50)...)
	}
	for name, c := range map[string]struct {
		memory int64
		scope  string
		want   int
	}{
		"the same client":    {0, "", 201},
		"another client":     {0, "other", 0},
		"no memory for more": {least, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := load(t, source, engine.Options{Threads: 1, Sequences: 1, Memory: c.memory})
			defer func() { _ = m.Close() }()
			for first := range int32(3) {
				generateOne(t, m, engine.Generation{Prompt: long(20 + first), MaxTokens: 2, LogProbs: -1})
			}
			g := engine.Generation{Prompt: append(long(20), 15, 18), MaxTokens: 20, LogProbs: 2, CacheScope: c.scope}
			a := generateOne(t, m, g)
			if a.Usage.CachedTokens != c.want {
				t.Errorf("%d tokens were cached, want %d", a.Usage.CachedTokens, c.want)
			}
			if s := m.Stats(); (s.ParkedBytes > 0) != (c.memory == 0) || s.StateUsage <= 0 || s.StateUsage > 1 {
				t.Errorf("%d bytes are parked, %v of the cells are in use", s.ParkedBytes, s.StateUsage)
			}
			wantSame(t, a, generate(t, source, g))
		})
	}
}

func generateOne(t *testing.T, m engine.TextModel, g engine.Generation) enginetest.Answer {
	t.Helper()
	a, err := enginetest.Generate(t.Context(), m, g)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestContract(t *testing.T) { enginetest.Text(t, load) }
