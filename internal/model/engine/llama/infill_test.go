package llama_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/enginetest"
	"github.com/outboard-run/outboard/internal/model/gguf"
)

// A prompt for a gap has the text before it, the text after it and the model's marks; what follows is
// the answer. A model without the marks refuses it.
func TestInfill(t *testing.T) {
	oracle := enginetest.Oracle()
	letter := func(c byte) int32 { return int32(gguf.First + bytes.IndexByte(oracle.Letters, c)) }
	b := oracle.Builder()
	for name, mark := range map[string]byte{"fim_pre": 'q', "fim_suf": 'j', "fim_mid": 'z'} {
		b.Set("tokenizer.ggml."+name+"_token_id", uint32(letter(mark)))
	}
	gap := engine.Text{Content: "the ", Suffix: "fox"}
	m := load(t, enginetest.WriteModel(t, b), engine.Options{Threads: 1, Sequences: 1})
	defer func() { _ = m.Close() }()
	prompt, err := m.Tokenize(t.Context(), gap)
	var want []int32
	for _, c := range []byte("qthe jfoxz") {
		want = append(want, letter(c))
	}
	if err != nil || !slices.Equal(prompt, want) {
		t.Fatalf("tokens %v, %v, want %v", prompt, err, want)
	}
	answer, err := enginetest.Generate(t.Context(), m, engine.Generation{Prompt: prompt, MaxTokens: 4, LogProbs: -1})
	if want := oracle.Greedy(letter('z'), 4); err != nil || !slices.Equal(answer.IDs(), want) {
		t.Errorf("answer %v, %v, want %v", answer.IDs(), err, want)
	}
	if _, err := m.Tokenize(t.Context(), engine.Text{Content: "the", Suffix: strings.Repeat("fox ", 20_000), Bounded: true}); !engine.IsTooLong(err) {
		t.Errorf("a long text after the gap: %v", err)
	}
	plain := load(t, enginetest.WriteModel(t, oracle.Builder()), engine.Options{Threads: 1, Sequences: 1})
	defer func() { _ = plain.Close() }()
	if _, err := plain.Tokenize(t.Context(), gap); outboard.KindOf(err) != outboard.Invalid || !strings.HasPrefix(err.Error(), "suffix: ") {
		t.Errorf("a model without marks: %v", err)
	}
}
