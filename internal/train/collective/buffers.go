package collective

import (
	"sync/atomic"

	"github.com/outboard-run/outboard"
)

// DefaultBuffers is the limit of a Buffers that has none, in bytes: 4 GiB.
const DefaultBuffers = 4 << 30

// A Buffers counts the temporary memory of calls, in bytes, and bounds it: programs choose how many
// groups they have, and how large the buffers of their calls are. A nil Buffers has no limit. Any
// number of goroutines may use it.
type Buffers struct {
	// Limit is the bound; 0: DefaultBuffers. It does not change.
	Limit int64
	held  atomic.Int64
}

// Reserve counts n bytes until they are released, or returns an error of the kind Exhausted. It does
// not wait: the calls that hold the memory may wait for another node, which waits for this one.
func (b *Buffers) Reserve(n int64) error {
	if b == nil {
		return nil
	}
	limit := b.Limit
	if limit == 0 {
		limit = DefaultBuffers
	}
	if b.held.Add(n) <= limit {
		return nil
	}
	b.held.Add(-n)
	return outboard.Errorf(outboard.Exhausted, "", "the calls of this job have buffers of %v on this node, and may have %v: make fewer calls at once, or smaller ones",
		outboard.Bytes(b.held.Load()+n), outboard.Bytes(limit))
}

// Release returns n reserved bytes.
func (b *Buffers) Release(n int64) {
	if b != nil {
		b.held.Add(-n)
	}
}

// Held returns how many bytes are reserved.
func (b *Buffers) Held() int64 { return b.held.Load() }

// reserve counts the memory that a call takes: what it takes until release is called, and
// the group's scratch, which later calls use again.
func (g *Group) reserve(c *Call) (release func(), err error) {
	temporary, scratch := g.bufferBytes(c)
	if grow := scratch - g.scratchHeld; grow > 0 {
		if err := g.buffers.Reserve(grow); err != nil {
			return nil, err
		}
		g.scratchHeld = scratch
	}
	if err := g.buffers.Reserve(temporary); err != nil {
		return nil, err
	}
	return func() { g.buffers.Release(temporary) }, nil
}

// releaseScratch frees the scratch of a group that has ended, after its running call.
func (g *Group) releaseScratch() {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	g.awaitExchanges()
	g.buffers.Release(g.scratchHeld)
	g.scratch, g.scratchHeld = nil, 0
}

// bufferBytes returns an upper bound of a call's temporary memory and of its scratch.
func (g *Group) bufferBytes(c *Call) (temporary, scratch int64) {
	size := int64(c.Count * c.Element.Size())
	switch a := g.algorithm(c); {
	case c.Operation == AllToAll, a == InOrder && (c.Operation == AllReduce || c.Operation == ReduceScatter):
		return 2*size + int64(g.n*c.Element.Size()), min(size, pieceSize) // extend: the buffer, and the parts of all ranks
	case g.exchanges(c):
		return 0, min(size, pieceSize)
	case c.Loss > 0 && g.paths != nil:
		return 2 * (size/chunkSize + int64(g.n)) * chunkBytes, 0
	case c.Operation == AllReduce && a == Doubling:
		return 0, size // receiveAside: the whole buffer
	case c.Store:
		return 2 * (size/int64(g.n) + int64(c.Element.Size())), 0 // download: a part, and its aligned copy
	}
	return 0, min(size, pieceSize)
}
