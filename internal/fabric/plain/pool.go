package plain

import (
	"math/bits"
	"sync"

	"github.com/outboard-run/outboard/internal/fabric/buffers"
)

// bufferPool is a mem.BufferPool for the messages of a server or a transport. Unlike grpc-go's own it
// does not zero a buffer that it reuses, which costs more than the copy of the message: grpc-go takes
// a buffer of 1 MiB for a message of more than 32 KiB, and zeroes all of it. Nothing reads a buffer
// beyond the bytes that were written to it. The zero value is an empty pool.
type bufferPool struct {
	small [maxSmallClass + 1]sync.Pool // of *[]byte, by the power of two of their sizes
	large buffers.Pool
}

// maxSmallClass is the power of two of the largest buffers in small.
const maxSmallClass = 15

// Get implements mem.BufferPool. The content of the buffer is undefined.
func (p *bufferPool) Get(length int) *[]byte {
	class := smallClass(length)
	if class > maxSmallClass {
		b := p.large.Get(length).Data[:length]
		return &b
	}
	if b, ok := p.small[class].Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<class)
	return &b
}

// smallClass returns the least power of two whose value is at least length.
func smallClass(length int) int { return bits.Len(uint(max(length, 1) - 1)) } //nolint:gosec // not negative

// Put implements mem.BufferPool.
func (p *bufferPool) Put(b *[]byte) {
	switch size := cap(*b); {
	case size >= buffers.MinPooled:
		p.large.Put(buffers.Of((*b)[:size]))
	case size > 0 && size == 1<<smallClass(size):
		p.small[smallClass(size)].Put(b)
	}
}

// Close drops the free buffers.
func (p *bufferPool) Close() { p.large.Close() }
