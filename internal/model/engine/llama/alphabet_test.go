package llama_test

import (
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/engine/llama"
	"github.com/outboard-run/outboard/internal/model/gguf"
)

// The oracle's vocabulary has the letters of its sentence and no token for any other byte.
// llama.cpp aborts the process where a text needs one: a failure of this test is the end of its
// process.
func TestPromptsThatTheVocabularyLacksAreRefused(t *testing.T) {
	m := load(t, enginetest.WriteModel(t, enginetest.Oracle().Builder()), engine.Options{Threads: 1, Sequences: 1})
	defer func() { _ = m.Close() }()
	for _, c := range []struct {
		text    string
		special bool
		missing string // "" if the text can be expressed
	}{
		{"the dog", false, ""},
		{"", true, ""},
		{"the Dog", false, "'D'"},
		{"the dog\n", true, `'\n'`},
		{"the d\u00f6g", true, "'ö'"},
		{"dog\x00", true, `'\x00'`},
		{"<s>the dog</s>", true, ""},
		{"<s>the dog</s>", false, "'<'"},
		{"<s>the Dog</s>", true, "'D'"},
		{"<s", true, "'<'"},
		{"the \xe2", true, "not UTF-8"},
	} {
		tokens, err := m.Tokenize(t.Context(), engine.Text{Content: c.text, Special: c.special})
		switch {
		case c.missing == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.missing != "" && (outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), c.missing)):
			t.Errorf("%q: tokens %v, error %v, want one of %s", c.text, tokens, err, c.missing)
		}
	}
}

// A vocabulary with tokens for all bytes expresses every text.
func TestBytesExpressEveryPrompt(t *testing.T) {
	shape := gguf.Shape{Layers: 1, Width: 32, FeedForward: 32, Heads: 1, SharedHeads: 1, Context: 64, Type: gguf.F32}
	m := load(t, enginetest.WriteModel(t, gguf.Random(shape, 1)), engine.Options{Threads: 1, Sequences: 1})
	defer func() { _ = m.Close() }()
	for _, text := range []string{"the Dög\n\x00", "\xe2\x28\xff"} {
		if tokens, err := m.Tokenize(t.Context(), engine.Text{Content: text}); err != nil || len(tokens) < len(text) {
			t.Errorf("%q: %d tokens, error %v", text, len(tokens), err)
		}
	}
}

func FuzzTokenize(f *testing.F) {
	m, err := (llama.Engine{}).Load(f.Context(), enginetest.WriteModel(f, enginetest.Oracle().Builder()), engine.Options{Threads: 1, Sequences: 1})
	if err != nil {
		f.Skip(err)
	}
	f.Cleanup(func() { _ = m.Close() })
	for _, text := range []string{"the dog", "<s>the dog</s>", "<<s>></s", "<unk> \u2581 \xe2</s>", "\x00\n"} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, special bool) {
		tokens, err := m.(engine.TextModel).Tokenize(t.Context(), engine.Text{Content: text, Special: special})
		if err != nil && outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%q: %v", text, err)
		}
		if len(tokens) > len(text)+1 {
			t.Errorf("%q: %d tokens", text, len(tokens))
		}
	})
}
