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
	// maxPooled bounds the free buffers of a pool, in bytes. A pool reaches it only while its messages
	// hold as much at once.
	maxPooled = 256 << 20
	// poolIdle is the time after which a pool drops the free buffers that no message has needed.
	poolIdle = time.Second
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

// Of returns the buffer whose Data are all of data, or nil if no buffer has that size.
func Of(data []byte) *Buffer {
	class, size := sizeClass(len(data))
	if size != len(data) {
		return nil
	}
	return &Buffer{data, class}
}

// Pool holds the free buffers of a connection. The zero value is an empty pool.
type Pool struct {
	mu     sync.Mutex
	free   []*Buffer   // those that were used last are at the end
	size   int         // bytes of free
	unused int         // the least size since the last call of release
	timer  *time.Timer // calls release; nil: there are no free buffers
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
	for i, x := range slices.Backward(p.free) {
		if x.class == class {
			p.free = slices.Delete(p.free, i, i+1)
			p.size -= len(x.Data)
			p.unused = min(p.unused, p.size)
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
		p.dropOldest()
	}
	if p.timer == nil {
		p.unused = p.size
		p.timer = time.AfterFunc(poolIdle, p.release)
	}
}

func (p *Pool) dropOldest() {
	p.size -= len(p.free[0].Data)
	p.free = slices.Delete(p.free, 0, 1)
}

// release drops as many bytes of free buffers as were free all the time since its last call.
func (p *Pool) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for left := p.size - p.unused; p.size > left && p.size-len(p.free[0].Data) >= left; {
		p.dropOldest()
	}
	p.unused = p.size
	if len(p.free) == 0 {
		p.free, p.timer = nil, nil
		return
	}
	p.timer.Reset(poolIdle)
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
