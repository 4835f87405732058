package llama

import (
	"context"
	"strconv"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// Methods of pooling a sequence's embeddings into one (llama_pooling_type).
const (
	poolingNone = 0
	poolingMean = 1
)

// maxEmbedded is the most tokens of a text to embed: encoders process all of them at once.
const maxEmbedded = 8192

// Embed returns the embedding of tokens, pooled by the model's method, or by the mean if it has
// none.
func (m *textModel) Embed(ctx context.Context, tokens []int32) ([]float32, error) {
	if err := checkTokens(tokens, m.info.Vocabulary); err != nil {
		return nil, err
	}
	if most := min(m.info.Context, maxEmbedded); len(tokens) > most {
		return nil, engine.ErrTooLong(strconv.Itoa(len(tokens)), most)
	}
	m.embedMu.Lock()
	defer m.embedMu.Unlock()
	m.mu.RLock() // texts are split into tokens meanwhile
	defer m.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.closed {
		return nil, errClosed
	}
	if err := m.openEmbedder(); err != nil {
		return nil, err
	}
	return m.embed(tokens)
}

func (m *textModel) openEmbedder() error {
	if m.embedder != 0 {
		return nil
	}
	l := m.lib.layout
	p := append(params(nil), m.lib.context...)
	n := min(m.info.Context, maxEmbedded)
	for _, at := range []int{l.cells, l.batch, l.microBatch} {
		p.setInt(at, n)
	}
	p.setInt(l.threads, m.threads)
	p.setInt(l.batchThreads, m.threads)
	p.setBool(l.embeddings, true)
	if kind, present := m.header.Of("pooling_type"); !present || kind == poolingNone {
		p.setInt(l.pooling, poolingMean)
	}
	messages.drain()
	if m.embedder = m.lib.callStruct(fnInit, p, m.model); m.embedder == 0 {
		return outboard.Errorf(outboard.Exhausted, "embed", "llama.cpp has no context for %d tokens: %s", n, lastMessage("it gives no reason"))
	}
	return nil
}

func (m *textModel) embed(tokens []int32) ([]float32, error) {
	if memory := m.lib.call(fnMemory, m.embedder); memory != 0 {
		m.lib.call(fnMemoryClear, memory, 1)
	}
	b := newBatch(len(tokens))
	defer b.free()
	for i, token := range tokens {
		b.add(token, i, 0, true)
	}
	if r := int32(m.lib.callStruct(fnDecode, b.params(), m.embedder)); r != 0 {
		return nil, outboard.Errorf(outboard.Other, "embed", "llama.cpp returned %d: %s", r, lastMessage("it gives no reason"))
	}
	address := m.lib.call(fnEmbeddingSequence, m.embedder, 0)
	if address == 0 {
		return nil, outboard.Errorf(outboard.Invalid, "embed", "the model makes no embeddings")
	}
	return append([]float32(nil), memory[float32](address, m.info.Embedding)...), nil
}
