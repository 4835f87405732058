// Package buffers keeps the memory of long messages for the next messages of a connection.
package buffers

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
)

// The length of a message is only a claim of the peer: memory for all of it is there
// once a part of it has come.
const (
	// FirstSize is how much is set aside for a message before any of it has come.
	FirstSize = 256 << 10
	// ClaimFactor is which part of a message must have come: a tenth.
	ClaimFactor = 10
)

// NextSize is how much room a message of that length gets when have bytes of it have
// come and fill what it had. Each part is copied to the next: few, and small ones
// before the last, so that little is copied, and never much at once.
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
	// maxPooled bounds the buffers that a connection keeps, in bytes, and poolIdle how long it
	// keeps them without using any.
	maxPooled = 64 << 20
	poolIdle  = time.Second
	// steps is the number of sizes of buffers between a power of two and the next.
	steps = 4
)

// sizeClass is the least class that has room for n bytes, and its size.
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

// Pool holds the free buffers of a connection. Its zero value is empty and ready.
type Pool struct {
	mu    sync.Mutex
	free  []*Buffer
	size  int
	used  bool // since the last look
	timer *time.Timer
}

// Get returns a buffer of at least n bytes with any content.
func (r *Pool) Get(n int) *Buffer {
	class, size := sizeClass(n)
	if x := r.reuse(class); x != nil {
		return x
	}
	return &Buffer{make([]byte, size), class}
}

// reuse returns a free buffer of the class, nil where there is none.
func (r *Pool) reuse(class int) *Buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = true
	for i, x := range slices.Backward(r.free) {
		if x.class == class {
			r.free = slices.Delete(r.free, i, i+1)
			r.size -= len(x.Data)
			return x
		}
	}
	return nil
}

// Put takes a room back; it may be nil. Those that have been there for longest make
// place for it.
func (r *Pool) Put(x *Buffer) {
	if x == nil || len(x.Data) > maxPooled {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free, r.size = append(r.free, x), r.size+len(x.Data)
	for r.size > maxPooled {
		r.size -= len(r.free[0].Data)
		r.free = slices.Delete(r.free, 0, 1)
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(poolIdle, r.release)
	}
}

// release lets the rooms go when none was needed of late.
func (r *Pool) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used {
		r.used = false
		r.timer.Reset(poolIdle)
		return
	}
	r.free, r.size, r.timer = nil, 0, nil
}

// Close lets the rooms go at the connection's end.
func (r *Pool) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.free, r.size, r.timer = nil, 0, nil
}

// Message is a message that lies in x, if that is not nil: when it is freed, the room
// is there for others.
func (r *Pool) Message(x *Buffer, data []byte, compressed bool) *call.Message {
	m := &call.Message{Data: data, Compressed: compressed}
	if x != nil {
		m.Release = func() { r.Put(x) }
	}
	return m
}
