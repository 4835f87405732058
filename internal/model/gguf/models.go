package gguf

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// A Shape is the shape of a model of the llama architecture with random weights.
type Shape struct {
	// Layers, Width, FeedForward, Heads and SharedHeads (of keys and values) are the
	// transformer's; Width is a multiple of 32 and of Heads.
	Layers, Width, FeedForward, Heads, SharedHeads int
	// Context is the longest sequence in tokens.
	Context int
	// Type is the type of the matrices, F32 or Q8_0.
	Type TensorType
	// Words are texts that are tokens in addition to the 256 bytes.
	Words []string
	// ChatTemplate is the model's template (Jinja), "" if it has none.
	ChatTemplate string
}

// epsilon is added to the mean square in normalization.
const epsilon = 1e-5

// Random returns a model with weights drawn from seed. Its vocabulary is <unk>, <s>, </s>, the
// 256 bytes and s.Words.
func Random(s Shape, seed uint64) *Builder {
	b := &Builder{}
	vocabulary := newVocabulary(s.Words)
	s.describe(b, len(vocabulary.tokens))
	vocabulary.describe(b, s.ChatTemplate)

	random := rand.New(rand.NewPCG(seed, 0))
	width := uint64(s.Width)
	matrix := func(name string, columns, rows uint64) {
		values := make([]float32, columns*rows)
		deviation := 1 / math.Sqrt(float64(columns))
		for i := range values {
			values[i] = float32(random.NormFloat64() * deviation)
		}
		b.Add(name, s.Type, values, columns, rows)
	}
	matrix("token_embd.weight", width, uint64(len(vocabulary.tokens)))
	for i := range s.Layers {
		s.addLayer(b, i, matrix)
	}
	b.Add("output_norm.weight", F32, constant(s.Width, 1), width)
	matrix("output.weight", width, uint64(len(vocabulary.tokens)))
	return b
}

// addLayer adds the tensors of a layer, with matrices that the function creates.
func (s *Shape) addLayer(b *Builder, i int, matrix func(name string, columns, rows uint64)) {
	width, hidden, state := uint64(s.Width), uint64(s.FeedForward), uint64(s.Width/s.Heads*s.SharedHeads)
	layer := fmt.Sprintf("blk.%d.", i)
	b.Add(layer+"attn_norm.weight", F32, constant(s.Width, 1), width)
	matrix(layer+"attn_q.weight", width, width)
	matrix(layer+"attn_k.weight", width, state)
	matrix(layer+"attn_v.weight", width, state)
	matrix(layer+"attn_output.weight", width, width)
	b.Add(layer+"ffn_norm.weight", F32, constant(s.Width, 1), width)
	matrix(layer+"ffn_gate.weight", width, hidden)
	matrix(layer+"ffn_up.weight", width, hidden)
	matrix(layer+"ffn_down.weight", hidden, width)
}

func (s *Shape) describe(b *Builder, vocabulary int) {
	b.Set("general.architecture", "llama")
	b.Set("general.name", "random")
	b.Set("llama.context_length", uint32(s.Context))
	b.Set("llama.embedding_length", uint32(s.Width))
	b.Set("llama.block_count", uint32(s.Layers))
	b.Set("llama.feed_forward_length", uint32(s.FeedForward))
	b.Set("llama.attention.head_count", uint32(s.Heads))
	b.Set("llama.attention.head_count_kv", uint32(s.SharedHeads))
	b.Set("llama.attention.layer_norm_rms_epsilon", float32(epsilon))
	b.Set("llama.rope.dimension_count", uint32(s.Width/s.Heads))
	b.Set("llama.vocab_size", uint32(vocabulary))
}

func constant(n int, value float32) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = value
	}
	return list
}

// The kinds of tokens (tokenizer.ggml.token_type).
const (
	tokenNormal  = 1
	tokenUnknown = 2
	tokenControl = 3
	tokenByte    = 6
)

// First is the first token that is neither <unk>, <s> nor </s>; End is </s>.
const (
	End   = 2
	First = 3
)

// A vocabulary is a SentencePiece vocabulary: longer pieces have higher scores, so that words are
// merged from their letters.
type vocabulary struct {
	tokens []string
	scores []float32
	types  []int32
}

func newVocabulary(words []string) *vocabulary {
	v := &vocabulary{}
	v.add("<unk>", 0, tokenUnknown)
	v.add("<s>", 0, tokenControl)
	v.add("</s>", 0, tokenControl)
	for i := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", i), 0, tokenByte)
	}
	for i, word := range words {
		v.add(word, -float32(i), tokenNormal)
	}
	return v
}

func (v *vocabulary) add(token string, score float32, kind int32) {
	v.tokens, v.scores, v.types = append(v.tokens, token), append(v.scores, score), append(v.types, kind)
}

func (v *vocabulary) describe(b *Builder, chatTemplate string) {
	b.Set("tokenizer.ggml.model", "llama")
	b.Set("tokenizer.ggml.tokens", v.tokens)
	b.Set("tokenizer.ggml.scores", v.scores)
	b.Set("tokenizer.ggml.token_type", v.types)
	b.Set("tokenizer.ggml.bos_token_id", uint32(1))
	b.Set("tokenizer.ggml.eos_token_id", uint32(End))
	b.Set("tokenizer.ggml.unknown_token_id", uint32(0))
	b.Set("tokenizer.ggml.add_bos_token", false)
	b.Set("tokenizer.ggml.add_space_prefix", false)
	if chatTemplate != "" {
		b.Set("tokenizer.chat_template", chatTemplate)
	}
}
