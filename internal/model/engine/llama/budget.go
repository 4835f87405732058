package llama

import (
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/gguf"
)

// A cacheBudget limits the cells of attention state that a prefixTree keeps. Each micro-batch reads
// the mask of every cell in use, of whatever sequence: 5,120 cells that no running sequence needed
// cost a model of 82 M parameters a fifth of its rate. The budget therefore begins at the number of
// cells that cost little, grows when a prompt arrives whose state was evicted, by the number of
// evicted tokens, and shrinks with each eviction. (Ghost lists: Megiddo and Modha, ARC, FAST 2003.)
type cacheBudget struct {
	cells, least, most int
	// evicted are hashes of the beginnings of evicted sequences, the last evicted at the end of
	// order.
	evicted map[uint32]bool
	order   []uint32
}

// maxEvicted is the number of hashes of evicted sequences that are kept: of 131,072 tokens.
const maxEvicted = 4096

// evictionDecay is the part of an evicted sequence by which the budget shrinks: an eviction shows
// only that the sequence was the least recently used.
const evictionDecay = 8

func newCacheBudget(least, most int) cacheBudget {
	least = min(least, most)
	return cacheBudget{cells: least, least: least, most: most, evicted: map[uint32]bool{}}
}

// recordEviction shrinks the budget after the eviction of the sequence with these hashes.
func (b *cacheBudget) recordEviction(hashes engine.Prefixes) {
	b.cells = max(b.least, b.cells-len(hashes)*engine.PrefixBlock/evictionDecay)
	for _, h := range hashes {
		if !b.evicted[h] {
			b.evicted[h] = true
			b.order = append(b.order, h)
		}
	}
	if surplus := len(b.order) - maxEvicted; surplus > 0 {
		for _, h := range b.order[:surplus] {
			delete(b.evicted, h)
		}
		b.order = append(b.order[:0], b.order[surplus:]...)
	}
}

// recordPrompt grows the budget by the tokens of a prompt, after the matched tokens at its
// beginning, whose state was evicted.
func (b *cacheBudget) recordPrompt(scope string, prompt []int32, matched int) {
	known := 0
	for i, h := range engine.PrefixHashes(scope, prompt, maxEvicted) {
		if !b.evicted[h] {
			break
		}
		known = (i + 1) * engine.PrefixBlock
	}
	b.cells = min(b.most, b.cells+max(0, known-matched))
}

// cheapCells returns the number of cells of other sequences that slow a model's decoding of one
// token by some 2 %: with the processor's backend, a cell costs each attention head of each layer
// as long as reading 26 bytes of weights. It returns at least a micro-batch.
func cheapCells(h *gguf.File) int {
	const bytesPerHead, part = 26, 50
	layers, _ := h.Of("block_count")
	heads, _ := h.Of("attention.head_count")
	perCell := bytesPerHead * max(min(layers, 1<<16), 1) * max(min(heads, 1<<16), 1)
	return int(min(max(h.Parameters()/part/perCell, microBatch), 1<<20))
}
