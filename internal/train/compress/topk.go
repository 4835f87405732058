package compress

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/outboard-run/outboard/internal/train/collective"
)

// entrySize is the size of an element that is sent, in bytes: its index and its value.
const entrySize = 8

// histogramBytes is the memory with which the greatest elements are found.
const histogramBytes = 2 * 8 << 16

// topK sums the elements of the greatest magnitude of each rank, in the order of ranks within each
// piece, and keeps the others for the next call with the same key.
func (r *Reducer) topK(ctx context.Context, c collective.Call, buf []byte, key uint64) error {
	values := floats(buf)
	k := max(1, int(r.spec.Fraction*float64(len(values))))
	n, piece := r.group.Size(), min(k, max(1, r.piece/(r.group.Size()*entrySize)))
	held := int64(k*entrySize + n*piece*entrySize + histogramBytes)
	if err := r.left.held.Buffers.Reserve(held); err != nil {
		return err
	}
	defer r.left.held.Buffers.Release(held)
	left := r.left.of(residualKey{key, len(values)})
	for i, v := range left {
		values[i] += v
	}
	own := make([]byte, k*entrySize)
	putGreatest(own, values)
	copy(left, values)
	clearSent(left, own)
	r.count(len(buf), len(own))
	clear(values)
	all := make([]byte, n*piece*entrySize)
	for ; len(own) > 0; own = own[min(len(own), piece*entrySize):] {
		if err := r.addPieces(ctx, c, values, own[:min(len(own), piece*entrySize)], all); err != nil {
			return err
		}
	}
	if c.Reduction == collective.Average {
		collective.Divide(buf, c.Element, n)
	}
	return nil
}

// addPieces gathers one piece of each rank's elements into all, and adds their elements.
func (r *Reducer) addPieces(ctx context.Context, c collective.Call, values []float32, own, all []byte) error {
	all = all[:r.group.Size()*len(own)]
	copy(all[r.group.Rank()*len(own):], own)
	c.Operation, c.Element, c.Reduction, c.Count = collective.AllGather, collective.Uint8, 0, len(all)
	if err := r.group.Do(ctx, c, all); err != nil {
		return err
	}
	for i := range r.group.Size() {
		if err := addEntries(values, all[i*len(own):(i+1)*len(own)]); err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return nil
}

// putGreatest writes the elements of the greatest magnitude, as many as fit into to, in their
// order. NaNs count as the greatest.
func putGreatest(to []byte, values []float32) {
	capacity := len(to) / entrySize
	least := kthMagnitude(values, capacity)
	above := 0
	for _, v := range values {
		if magnitude(v) > least {
			above++
		}
	}
	putFrom(to, values, least, capacity-above) // elements as great as the least one fit, too
}

// putFrom writes the elements whose magnitude is more than the least, and the first equal elements of
// that magnitude, as many as fit into to. The values are in the memory of a rank, which may have changed
// them since they were counted.
func putFrom(to []byte, values []float32, least uint32, equal int) {
	at := 0
	for i, v := range values {
		if at == len(to) {
			return
		}
		switch m := magnitude(v); {
		case m < least, m == least && equal == 0:
			continue
		case m == least:
			equal--
		}
		binary.LittleEndian.PutUint32(to[at:], uint32(i))
		binary.LittleEndian.PutUint32(to[at+4:], math.Float32bits(v))
		at += entrySize
	}
}

// magnitude orders numbers by their absolute value.
func magnitude(v float32) uint32 { return math.Float32bits(v) &^ (1 << 31) }

// kthMagnitude returns the k-th greatest magnitude, by the counts of its 16 high bits and then of
// its 16 low bits.
func kthMagnitude(values []float32, k int) uint32 {
	high := make([]int, 1<<16)
	for _, v := range values {
		high[magnitude(v)>>16]++
	}
	top, k := descend(high, k)
	low := make([]int, 1<<16)
	for _, v := range values {
		if m := magnitude(v); m>>16 == top {
			low[m&0xffff]++
		}
	}
	bottom, _ := descend(low, k)
	return top<<16 | bottom
}

// descend returns the index whose count includes the k-th value, counted from the last index down,
// and the rank of that value there.
func descend(counts []int, k int) (at uint32, rest int) {
	for i := len(counts) - 1; i > 0; i-- {
		if k <= counts[i] {
			return uint32(i), k
		}
		k -= counts[i]
	}
	return 0, k
}

// clearSent sets the elements that were sent to zero.
func clearSent(left []float32, entries []byte) {
	for ; len(entries) > 0 && len(left) > 0; entries = entries[entrySize:] {
		left[binary.LittleEndian.Uint32(entries)] = 0
	}
}

// addEntries adds the elements that a rank has sent.
func addEntries(to []float32, entries []byte) error {
	for ; len(entries) > 0; entries = entries[entrySize:] {
		i := binary.LittleEndian.Uint32(entries)
		if int(i) >= len(to) {
			return fmt.Errorf("it sent element %d of %d", i, len(to))
		}
		to[i] += math.Float32frombits(binary.LittleEndian.Uint32(entries[4:]))
	}
	return nil
}

// A residualKey names a buffer of the program by its address and its number of elements.
type residualKey struct {
	key   uint64
	count int
}

// residuals holds the elements that calls have not sent, by buffer. If there are too many, the
// residual of the oldest buffer is dropped.
type residuals struct {
	held  *Memory
	all   map[residualKey][]float32
	order []residualKey // from the oldest
}

// of returns the residual of a buffer, zeros at first, and nil if there is no memory for it: the
// sums are less exact then.
func (r *residuals) of(k residualKey) []float32 {
	if left, ok := r.all[k]; ok {
		return left
	}
	if k.count > maxResidual {
		return nil
	}
	for !r.held.reserveResidual(k.count) {
		if len(r.order) == 0 {
			return nil // other groups hold the memory
		}
		r.forget()
	}
	if r.all == nil {
		r.all = make(map[residualKey][]float32)
	}
	r.all[k] = make([]float32, k.count)
	r.order = append(r.order, k)
	return r.all[k]
}

// forget drops the oldest buffer's residual.
func (r *residuals) forget() {
	oldest := r.order[0]
	r.order = r.order[1:]
	r.held.residuals.Add(-int64(oldest.count))
	delete(r.all, oldest)
}
