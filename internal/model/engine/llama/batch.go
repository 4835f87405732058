package llama

// A batch is a llama_batch: its arrays are allocated once and pinned.
type batch struct {
	tokens    *pinned[int32]
	positions *pinned[int32]
	counts    *pinned[int32] // the number of sequences of each token: always 1
	owners    *pinned[int32] // the sequence of each token
	pointers  *pinned[uintptr]
	outputs   *pinned[int8] // whether logits of the token are requested
	n         int
}

func newBatch(size int) *batch {
	b := &batch{
		tokens: pin(make([]int32, size)), positions: pin(make([]int32, size)), counts: pin(make([]int32, size)),
		owners: pin(make([]int32, size)), pointers: pin(make([]uintptr, size)), outputs: pin(make([]int8, size)),
	}
	for i := range size {
		b.counts.values[i] = 1
		b.pointers.values[i] = b.owners.address() + uintptr(4*i)
	}
	return b
}

func (b *batch) free() {
	for _, p := range []*pinned[int32]{b.tokens, b.positions, b.counts, b.owners} {
		p.free()
	}
	b.pointers.free()
	b.outputs.free()
}

func (b *batch) reset() { b.n = 0 }

// available returns the number of tokens that still fit.
func (b *batch) available() int { return len(b.tokens.values) - b.n }

// add adds a token and returns its index.
func (b *batch) add(token int32, position int, sequence int32, output bool) int {
	i := b.n
	b.tokens.values[i], b.positions.values[i], b.owners.values[i] = token, int32(position), sequence
	b.outputs.values[i] = int8(truth(output))
	b.n++
	return i
}

// params returns the struct: n_tokens, token, embd, pos, n_seq_id, seq_id, logits.
func (b *batch) params() params {
	p := make(params, 56)
	p.setInt(0, b.n)
	p.setPointer(8, b.tokens.address())
	p.setPointer(24, b.positions.address())
	p.setPointer(32, b.counts.address())
	p.setPointer(40, b.pointers.address())
	p.setPointer(48, b.outputs.address())
	return p
}
