// Package texttest provides a model that answers with a text of the test, for tests of protocols.
package texttest

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// A Backend has one model, whose name is "small". Its tokens are bytes; it generates its answer in
// pieces of three bytes.
type Backend struct {
	// Answer is the generated text; if Err is set, generations end with it after Pieces pieces, and
	// embeddings at once.
	Answer string
	Err    error
	Pieces int
	// LogProb is the logarithm of the probability of all tokens, by default -0.5.
	LogProb float32
	// Template is the chat template, by default one for conversations with tools.
	Template string
	// Rendered is the text of all conversations, by default "rendered"; RenderJSON makes it the JSON of
	// their messages.
	Rendered   string
	RenderJSON bool
	// Begin makes all texts begin with the token 1.
	Begin bool
	// Block makes a generation wait for the end of its context after the first piece.
	Block bool

	mu       sync.Mutex
	Requests []engine.Generation
	// Prompts are the texts that were tokenized, Conversations the conversations that were
	// rendered.
	Prompts       []string
	Conversations []engine.Conversation
	Released      int
}

var _ text.Backend = (*Backend)(nil)

// Context is the model's context in tokens.
const Context = 1000

// Open implements text.Backend.
func (b *Backend) Open(_ context.Context, name string) (text.Model, func(), error) {
	if name != "small" {
		return nil, nil, outboard.Errorf(outboard.NotFound, "", "no model %q", name)
	}
	return (*fake)(b), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.Released++
	}, nil
}

// List implements text.Backend.
func (b *Backend) List(context.Context) ([]text.Description, error) {
	return []text.Description{{
		Name: "small", Aliases: []string{"tiny"}, Modified: time.Unix(1_700_000_000, 0).UTC(), Size: 5, Digest: "abc", Architecture: "llama",
		Parameters: 1_500_000_000, Quantization: "Q8_0", ChatTemplate: b.template(), Context: Context, Loaded: true, Memory: 7,
	}}, nil
}

type fake Backend

func (f *fake) Info() engine.Info {
	return engine.Info{Context: Context, Vocabulary: 256, Embedding: 2, ChatTemplate: (*Backend)(f).template()}
}

func (b *Backend) template() string { return cmp.Or(b.Template, "{{ messages }}{{ tools }}") }

func (f *fake) Tokenize(_ context.Context, t engine.Text) ([]int32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.Suffix != "" {
		t.Content += "<gap>" + t.Suffix
	}
	f.Prompts = append(f.Prompts, t.Content)
	var tokens []int32
	if f.Begin {
		tokens = append(tokens, 1)
	}
	for _, c := range []byte(t.Content) {
		tokens = append(tokens, int32(c))
	}
	return tokens, nil
}

func (f *fake) Render(_ context.Context, c engine.Conversation) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Conversations = append(f.Conversations, c)
	if f.RenderJSON {
		return string(c.Messages), nil
	}
	return cmp.Or(f.Rendered, "rendered"), nil
}

func (f *fake) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	f.mu.Lock()
	f.Requests = append(f.Requests, g)
	f.mu.Unlock()
	if len(g.Prompt) >= Context {
		return engine.Usage{}, outboard.Errorf(outboard.Invalid, "prompt", "it has %d tokens", len(g.Prompt))
	}
	u := engine.Usage{PromptTokens: len(g.Prompt), CachedTokens: 1}
	for rest := f.Answer; ; {
		if f.Err != nil && u.GeneratedTokens == f.Pieces {
			return u, f.Err
		}
		n := min(3, len(rest))
		t := engine.Token{ID: int32(u.GeneratedTokens), Text: rest[:n]}
		rest = rest[n:]
		if g.LogProbs >= 0 {
			t.LogProb = cmp.Or(f.LogProb, -0.5)
			t.Top = []engine.Candidate{{ID: t.ID, Text: t.Text, LogProb: t.LogProb}, {ID: 99, Text: "x", LogProb: -1}}
			t.Top = t.Top[:min(2, g.LogProbs)]
		}
		u.GeneratedTokens++
		switch {
		case rest == "":
			t.Last = engine.FinishStop
		case u.GeneratedTokens == g.MaxTokens:
			t.Last = engine.FinishLength
		}
		if err := emit(t); err != nil {
			return u, err
		}
		if t.Last != "" {
			return u, nil
		}
		if f.Block {
			<-ctx.Done()
			return u, context.Cause(ctx)
		}
	}
}

func (f *fake) Embed(_ context.Context, tokens []int32) ([]float32, error) {
	if f.Err != nil {
		return nil, f.Err
	}
	return []float32{3, 4 * float32(strings.Count(string(tokens), "a")+1)}, nil
}
