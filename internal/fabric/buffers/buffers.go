// Package buffers keeps the memory of long messages for the next messages of a connection.
package buffers

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
)

// The length of a message is only a claim of the peer: all of its memory is allocated once a part
// of the message has arrived.
const (
	// FirstSize is the size of the first buffer of a message, before any of it has arrived, in
	// bytes.
	FirstSize = 256 << 10
	// ClaimFactor is the inverse of the part of a message that must have arrived: a tenth.
	ClaimFactor = 10
)

// NextSize returns the size of the next buffer for a message of that length, of which have bytes
// have arrived and fill the last buffer. The content of each buffer is copied to the next one:
// there are few buffers, and the buffers before the last are small, so that little is copied, and
// never much at once.
func NextSize(have, length int) int {
	if have >= length/ClaimFactor {
		return length
	}
	return min(have*ClaimFactor, length/ClaimFactor+1)
}

// A Buffer is memory for a long message. A connection keeps buffers for its next messages:
// memory from the heap has to be zeroed, and its allocation may assist the garbage collector.
// That would delay the connection's reader, and with it all other calls.
type Buffer struct {
	// Data is all of the memory, with any content.
	Data  []byte
	class int
}

const (
	// MinPooled is the least size of a buffer, in bytes: smaller messages lie in the heap.
	MinPooled = 64 << 10
	// maxPooled bounds the buffers that a connection keeps, in bytes, and poolIdle the time for
	// which it keeps unused buffers.
	maxPooled = 64 << 20
	poolIdle  = time.Second
	// steps is the number of sizes of buffers between a power of two and the next.
	steps = 4
)

// sizeClass returns the least class of buffers with n bytes or more, and their size.
func sizeClass(n int) (class, size int) {
	if n <= MinPooled {
		return 0, MinPooled
	}
	power := bits.Len(uint((n-1)/MinPooled)) - 1
	base := MinPooled << power
	step := base / steps
	above := (n - base + step - 1) / step
	return power*steps + above, base + above*step
}

// Pool holds the free buffers of a connection. The zero value is an empty pool.
type Pool struct {
	mu    sync.Mutex
	free  []*Buffer
	size  int
	used  bool // Get was called since the last call of release
	timer *time.Timer
}

// Get returns a buffer of at least n bytes with any content.
func (p *Pool) Get(n int) *Buffer {
	class, size := sizeClass(n)
	if x := p.reuse(class); x != nil {
		return x
	}
	return &Buffer{make([]byte, size), class}
}

// reuse returns a free buffer of the class, or nil if there is none.
func (p *Pool) reuse(class int) *Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = true
	for i, x := range slices.Backward(p.free) {
		if x.class == class {
			p.free = slices.Delete(p.free, i, i+1)
			p.size -= len(x.Data)
			return x
		}
	}
	return nil
}

// Put adds b, which may be nil, to the free buffers. The oldest free buffers are dropped beyond
// maxPooled.
func (p *Pool) Put(b *Buffer) {
	if b == nil || len(b.Data) > maxPooled {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free, p.size = append(p.free, b), p.size+len(b.Data)
	for p.size > maxPooled {
		p.size -= len(p.free[0].Data)
		p.free = slices.Delete(p.free, 0, 1)
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(poolIdle, p.release)
	}
}

// release drops the free buffers if none was used since its last call.
func (p *Pool) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used {
		p.used = false
		p.timer.Reset(poolIdle)
		return
	}
	p.free, p.size, p.timer = nil, 0, nil
}

// Close drops the free buffers at the end of the connection.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.free, p.size, p.timer = nil, 0, nil
}

// Message returns a message whose data lie in b, or in the heap if b is nil. The message's Release
// puts b back.
func (p *Pool) Message(b *Buffer, data []byte, compressed bool) *call.Message {
	m := &call.Message{Data: data, Compressed: compressed}
	if b != nil {
		m.Release = func() { p.Put(b) }
	}
	return m
}
