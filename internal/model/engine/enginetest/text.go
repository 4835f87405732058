package enginetest

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/gguf"
)

// Sentence is the text from which the oracle's pairs are counted.
const Sentence = "the quick brown fox jumps over the lazy dog and then the dog sleeps in the sun"

// WriteModel writes a GGUF file into a folder of the test and returns it as a source.
func WriteModel(t testing.TB, b *gguf.Builder) engine.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := b.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	return engine.Source{Path: path}
}

// Text tests an engine against the contract of text models. Load loads a GGUF model; the test
// closes it.
func Text(t *testing.T, load func(*testing.T, engine.Source, engine.Options) engine.TextModel) {
	TextOf(t, Library, load)
}

// Oracle returns the model of the contract tests: its answers are known in advance.
func Oracle() *gguf.Bigram { return gguf.CountBigram(Sentence, 256, "") }

// A Kind of engine determines which parts of the contract it can meet.
type Kind int

// The kinds of engines.
const (
	// Library is an engine that samples with our code, and meets the whole contract.
	Library Kind = iota
	// Server is a third party's server: its seeded sampling depends on more than a token's
	// position, and embeddings need a server that was started for them.
	Server
	// PlainServer is a server whose log-probabilities name texts instead of tokens.
	PlainServer
)

// TextOf is Text for a kind of engine.
func TextOf(t *testing.T, kind Kind, load func(*testing.T, engine.Source, engine.Options) engine.TextModel) {
	oracle := Oracle()
	open := func(t *testing.T, o engine.Options) engine.TextModel {
		t.Helper()
		o.Threads = 1
		m := load(t, WriteModel(t, oracle.Builder()), o)
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	c := &textCases{oracle: oracle, open: open}
	t.Run("Greedy", c.greedy)
	if kind != PlainServer {
		t.Run("LogProbs", c.logProbs)
	}
	t.Run("Concurrent", c.concurrent)
	t.Run("SampledShares", c.sampledShares)
	if kind == Library {
		t.Run("ResumesOnAnotherModel", c.resumesOnAnotherModel)
	}
	t.Run("Stop", c.stop)
	t.Run("IgnoreEnd", c.ignoreEnd)
	t.Run("Cancel", c.cancel)
	t.Run("EmitError", c.emitError)
	t.Run("CachedPrefix", c.cachedPrefix)
	t.Run("Grammar", c.grammar)
	t.Run("BadRequests", c.badRequests)
	t.Run("Close", c.closing)
	if kind == Library {
		t.Run("Embed", c.embed)
	}
}

type textCases struct {
	oracle *gguf.Bigram
	open   func(*testing.T, engine.Options) engine.TextModel
}

// An Answer is the output of a generation.
type Answer struct {
	Tokens []engine.Token
	Usage  engine.Usage
}

// Text returns the text of all tokens.
func (a Answer) Text() string {
	var b strings.Builder
	for _, t := range a.Tokens {
		b.WriteString(t.Text)
	}
	return b.String()
}

// IDs returns the identifiers of all tokens.
func (a Answer) IDs() []int32 {
	var ids []int32
	for _, t := range a.Tokens {
		ids = append(ids, t.ID)
	}
	return ids
}

// Generate runs a generation to its end.
func Generate(ctx context.Context, m engine.TextModel, g engine.Generation) (Answer, error) {
	var a Answer
	usage, err := m.Generate(ctx, g, func(t engine.Token) error {
		a.Tokens = append(a.Tokens, t)
		return nil
	})
	a.Usage = usage
	return a, err
}

func mustTokenize(t testing.TB, m engine.TextModel, text string) []int32 {
	t.Helper()
	tokens, err := m.Tokenize(t.Context(), engine.Text{Content: text})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func mustGenerate(t testing.TB, m engine.TextModel, g engine.Generation) Answer {
	t.Helper()
	a, err := Generate(t.Context(), m, g)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (c *textCases) greedy(t *testing.T) {
	m := c.open(t, engine.Options{})
	prompt := mustTokenize(t, m, "the qu")
	a := mustGenerate(t, m, engine.Generation{Prompt: prompt, MaxTokens: 40, LogProbs: -1})
	if want := c.oracle.Greedy(prompt[len(prompt)-1], 40); !slices.Equal(a.IDs(), want) {
		t.Errorf("tokens %v, want %v", a.IDs(), want)
	}
	if a.Usage.PromptTokens != 6 || a.Usage.GeneratedTokens != len(a.Tokens) {
		t.Errorf("usage %+v for %d tokens after 6", a.Usage, len(a.Tokens))
	}
	if last := a.Tokens[len(a.Tokens)-1].Last; last == "" {
		t.Error("the last token says nothing of the end")
	}
}

func (c *textCases) logProbs(t *testing.T) {
	m := c.open(t, engine.Options{})
	prompt := mustTokenize(t, m, "the")
	a := mustGenerate(t, m, engine.Generation{Prompt: prompt, MaxTokens: 20, LogProbs: 3})
	before := prompt[len(prompt)-1]
	for i, token := range a.Tokens {
		row := c.oracle.Probability[before]
		if want := math.Log(row[token.ID]); math.Abs(float64(token.LogProb)-want) > 1e-5 {
			t.Errorf("token %d: log-probability %v, want %v", i, token.LogProb, want)
		}
		if len(token.Top) != 3 || token.Top[0].ID != token.ID && token.Top[0].LogProb != token.LogProb {
			t.Errorf("token %d: top %v of greedy token %d", i, token.Top, token.ID)
		}
		for _, top := range token.Top {
			if want := math.Log(row[top.ID]); math.Abs(float64(top.LogProb)-want) > 1e-5 {
				t.Errorf("token %d: candidate %d has %v, want %v", i, top.ID, top.LogProb, want)
			}
		}
		before = token.ID
	}
}

// concurrent decodes more sequences than can run at once; each has its own answer.
func (c *textCases) concurrent(t *testing.T) {
	m := c.open(t, engine.Options{Sequences: 4})
	var wait sync.WaitGroup
	for i := range 20 {
		prompt := mustTokenize(t, m, Sentence[:3+i])
		want := c.oracle.Greedy(prompt[len(prompt)-1], 30)
		wait.Go(func() {
			a, err := Generate(t.Context(), m, engine.Generation{Prompt: prompt, MaxTokens: 30, LogProbs: -1})
			if err != nil || !slices.Equal(a.IDs(), want) {
				t.Errorf("prompt %d: %v %v, want %v", i, a.IDs(), err, want)
			}
		})
	}
	wait.Wait()
}

// sampledShares compares the frequencies with which tokens are chosen with their probabilities.
func (c *textCases) sampledShares(t *testing.T) {
	m := c.open(t, engine.Options{})
	prompt := mustTokenize(t, m, "the")
	row := c.oracle.Probability[prompt[len(prompt)-1]]
	const n = 400
	counts := make([]float64, len(row))
	for seed := range uint64(n) {
		a := mustGenerate(t, m, engine.Generation{Prompt: prompt, MaxTokens: 1, LogProbs: -1, Sampling: engine.Sampling{Temperature: 1, Seed: seed}})
		counts[a.Tokens[0].ID]++
	}
	for id, p := range row {
		deviation := math.Sqrt(n * p * (1 - p))
		if got := counts[id]; math.Abs(got-n*p) > 5*deviation+1 {
			t.Errorf("token %d was chosen %v times of %d, its probability is %v", id, got, n, p)
		}
	}
}

// resumesOnAnotherModel stops a seeded generation in the middle and continues it with another model.
func (c *textCases) resumesOnAnotherModel(t *testing.T) {
	a, b := c.open(t, engine.Options{}), c.open(t, engine.Options{})
	g := engine.Generation{
		Prompt: mustTokenize(t, a, "the "), MaxTokens: 60, LogProbs: -1, Stop: []string{"qqq"},
		Sampling: engine.Sampling{Temperature: 1.2, TopP: 0.95, RepeatPenalty: 1.1, Seed: 7, Bias: map[int32]float32{gguf.End: -100}},
	}
	whole := mustGenerate(t, a, g)
	for _, at := range []int{1, 20, 59} {
		rest := g
		rest.Prompt = append(slices.Clone(g.Prompt), whole.IDs()[:at]...)
		rest.Continued, rest.MaxTokens = at, g.MaxTokens-at
		got := mustGenerate(t, b, rest)
		if !slices.Equal(got.IDs(), whole.IDs()[at:]) {
			t.Errorf("after %d tokens: %v, want %v", at, got.IDs(), whole.IDs()[at:])
		}
		if joined := (Answer{Tokens: whole.Tokens[:at]}).Text() + got.Text(); joined != whole.Text() {
			t.Errorf("after %d tokens: text %q, want %q", at, joined, whole.Text())
		}
	}
}

func (c *textCases) stop(t *testing.T) {
	m := c.open(t, engine.Options{})
	prompt := mustTokenize(t, m, "the")
	g := engine.Generation{Prompt: prompt, MaxTokens: 60, LogProbs: -1, Sampling: engine.Sampling{Temperature: 1, Seed: 3, Bias: map[int32]float32{gguf.End: -100}}}
	whole := mustGenerate(t, m, g).Text()
	stop := whole[20:24]
	g.Stop = []string{"never there", stop}
	a := mustGenerate(t, m, g)
	if want, _, _ := strings.Cut(whole, stop); a.Text() != want {
		t.Errorf("text %q, want %q", a.Text(), want)
	}
	if last := a.Tokens[len(a.Tokens)-1].Last; last != engine.FinishStop {
		t.Errorf("finish reason %q", last)
	}
}

// ignoreEnd generates after the end of a text, until the number of tokens is reached.
func (c *textCases) ignoreEnd(t *testing.T) {
	m := c.open(t, engine.Options{})
	g := engine.Generation{Prompt: mustTokenize(t, m, "the"), MaxTokens: 12, LogProbs: -1, Sampling: engine.Sampling{Bias: map[int32]float32{gguf.End: 100}}}
	if a := mustGenerate(t, m, g); len(a.Tokens) != 1 || a.Tokens[0].Last != engine.FinishStop {
		t.Errorf("%d tokens: %+v", len(a.Tokens), a.Tokens)
	}
	g.IgnoreEnd = true
	a := mustGenerate(t, m, g)
	if len(a.Tokens) != 12 || a.Tokens[11].Last != engine.FinishLength {
		t.Errorf("%d tokens: %+v", len(a.Tokens), a.Tokens)
	}
}

// long returns a generation that runs for a while before it ends.
func (c *textCases) long(t *testing.T, m engine.TextModel) engine.Generation {
	return engine.Generation{
		Prompt: mustTokenize(t, m, "the"), LogProbs: -1,
		Sampling: engine.Sampling{Temperature: 1, Seed: 1, Bias: map[int32]float32{gguf.End: -100}},
	}
}

// cancel ends one generation while another continues.
func (c *textCases) cancel(t *testing.T) {
	m := c.open(t, engine.Options{})
	g := c.long(t, m)
	want := mustGenerate(t, m, g)
	var wait sync.WaitGroup
	wait.Go(func() {
		got, err := Generate(t.Context(), m, g)
		if err != nil || !slices.Equal(got.IDs(), want.IDs()) {
			t.Errorf("the other generation: %v, %d tokens instead of %d", err, len(got.Tokens), len(want.Tokens))
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := m.Generate(ctx, g, func(engine.Token) error {
		if n++; n == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after %d tokens", err, n)
	}
	wait.Wait()
	if s := m.Stats(); s.Running > 1 || s.Waiting != 0 {
		t.Errorf("stats afterwards: %+v", s)
	}
}

func (c *textCases) emitError(t *testing.T) {
	m := c.open(t, engine.Options{})
	broken := errors.New("the client has gone")
	if _, err := m.Generate(t.Context(), c.long(t, m), func(engine.Token) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func (c *textCases) cachedPrefix(t *testing.T) {
	m := c.open(t, engine.Options{})
	prompt := mustTokenize(t, m, Sentence)
	g := engine.Generation{Prompt: prompt, MaxTokens: 5, LogProbs: -1}
	cold := mustGenerate(t, m, g)
	warm := mustGenerate(t, m, g)
	if cold.Usage.CachedTokens != 0 || warm.Usage.CachedTokens != len(prompt)-1 {
		t.Errorf("cached %d and then %d of %d tokens", cold.Usage.CachedTokens, warm.Usage.CachedTokens, len(prompt))
	}
	if !slices.Equal(cold.IDs(), warm.IDs()) {
		t.Errorf("tokens %v, from cached state %v", cold.IDs(), warm.IDs())
	}
	g.Prompt = append(slices.Clone(prompt[:20]), prompt[:10]...)
	if branch := mustGenerate(t, m, g); branch.Usage.CachedTokens != 20 {
		t.Errorf("%d tokens of a common beginning of 20 were cached", branch.Usage.CachedTokens)
	}
	g.Prompt, g.CacheScope = prompt, "key/other"
	if other := mustGenerate(t, m, g); other.Usage.CachedTokens != 0 || !slices.Equal(cold.IDs(), other.IDs()) {
		t.Errorf("another client: %d tokens were cached, tokens %v, want none and %v", other.Usage.CachedTokens, other.IDs(), cold.IDs())
	}
}

func (c *textCases) grammar(t *testing.T) {
	m := c.open(t, engine.Options{})
	g := c.long(t, m)
	g.Grammar = `root ::= "fox" | "dog" " sleeps"`
	if a := mustGenerate(t, m, g); a.Text() != "fox" && a.Text() != "dog sleeps" {
		t.Errorf("text %q is outside of the grammar", a.Text())
	}
	g.Grammar = `root ::= (`
	if _, err := Generate(t.Context(), m, g); err == nil {
		t.Error("a grammar that does not parse was accepted")
	}
}

func (c *textCases) badRequests(t *testing.T) {
	m := c.open(t, engine.Options{})
	prompt := mustTokenize(t, m, "the")
	for name, g := range map[string]engine.Generation{
		"too long":  {Prompt: slices.Repeat(prompt, 200)},
		"empty":     {},
		"token":     {Prompt: []int32{1 << 30}},
		"negative":  {Prompt: []int32{-1}},
		"continued": {Prompt: prompt, Continued: 4},
		"stop":      {Prompt: prompt, Stop: []string{""}},
	} {
		if _, err := Generate(t.Context(), m, g); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	mustGenerate(t, m, engine.Generation{Prompt: prompt, MaxTokens: 1, LogProbs: -1})
}

// closing unloads a model while generations are in progress.
func (c *textCases) closing(t *testing.T) {
	m := c.open(t, engine.Options{Sequences: 1})
	g := c.long(t, m)
	started := make(chan struct{})
	var once sync.Once
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			_, _ = m.Generate(t.Context(), g, func(engine.Token) error {
				once.Do(func() { close(started) })
				return nil
			})
		})
	}
	<-started
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	wait.Wait()
	if _, err := Generate(t.Context(), m, g); err == nil {
		t.Error("a closed model generates")
	}
}

func (c *textCases) embed(t *testing.T) {
	m := c.open(t, engine.Options{})
	a, err := m.Embed(t.Context(), mustTokenize(t, m, "the dog"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Embed(t.Context(), mustTokenize(t, m, "the dog"))
	if err != nil || !slices.Equal(a, b) || len(a) != m.Info().Embedding {
		t.Errorf("%d values, equal the second time: %v, error %v", len(a), slices.Equal(a, b), err)
	}
	other, err := m.Embed(t.Context(), mustTokenize(t, m, "quick"))
	if err != nil || slices.Equal(a, other) {
		t.Errorf("another text has the same embedding (%v)", err)
	}
}
