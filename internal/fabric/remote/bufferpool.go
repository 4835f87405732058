package remote

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
	// firstSize is how much is set aside for a message before any of it has come.
	firstSize = 256 << 10
	// claimFactor is which part of a message must have come: a tenth.
	claimFactor = 10
)

// nextSize is how much room a message of that length gets when have bytes of it have
// come and fill what it had. Each part is copied to the next: few, and small ones
// before the last, so that little is copied, and never much at once.
func nextSize(have, length int) int {
	if have >= length/claimFactor {
		return length
	}
	return min(have*claimFactor, length/claimFactor+1)
}

// A buffer is memory for a long message. A connection keeps buffers for its next messages:
// memory from the heap has to be zeroed, and its allocation may assist the garbage collector.
// That would delay the connection's reader, and with it all other calls.
type buffer struct {
	data  []byte
	class int
}

const (
	minPooled = 64 << 10 // smaller ones come from the heap
	// maxPooled bounds the buffers that a connection keeps, in bytes, and poolIdle how long it
	// keeps them without using any.
	maxPooled = 64 << 20
	poolIdle  = time.Second
	// steps is the number of sizes of buffers between a power of two and the next.
	steps = 4
)

// sizeClass is the least class that has room for n bytes, and its size.
func sizeClass(n int) (class, size int) {
	if n <= minPooled {
		return 0, minPooled
	}
	power := bits.Len(uint((n-1)/minPooled)) - 1
	base := minPooled << power
	step := base / steps
	above := (n - base + step - 1) / step
	return power*steps + above, base + above*step
}

// bufferPool holds the free buffers.
type bufferPool struct {
	mu    sync.Mutex
	free  []*buffer
	size  int
	used  bool // since the last look
	timer *time.Timer
}

// get returns a buffer of at least n bytes with any content.
func (r *bufferPool) get(n int) *buffer {
	class, size := sizeClass(n)
	if x := r.reuse(class); x != nil {
		return x
	}
	return &buffer{make([]byte, size), class}
}

// reuse returns a free buffer of the class, nil where there is none.
func (r *bufferPool) reuse(class int) *buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = true
	for i, x := range slices.Backward(r.free) {
		if x.class == class {
			r.free = slices.Delete(r.free, i, i+1)
			r.size -= len(x.data)
			return x
		}
	}
	return nil
}

// put takes a room back; it may be nil. Those that have been there for longest make
// place for it.
func (r *bufferPool) put(x *buffer) {
	if x == nil || len(x.data) > maxPooled {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free, r.size = append(r.free, x), r.size+len(x.data)
	for r.size > maxPooled {
		r.size -= len(r.free[0].data)
		r.free = slices.Delete(r.free, 0, 1)
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(poolIdle, r.release)
	}
}

// release lets the rooms go when none was needed of late.
func (r *bufferPool) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used {
		r.used = false
		r.timer.Reset(poolIdle)
		return
	}
	r.free, r.size, r.timer = nil, 0, nil
}

// close lets the rooms go at the connection's end.
func (r *bufferPool) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.free, r.size, r.timer = nil, 0, nil
}

// newMessage is a message that lies in x, if that is not nil: when it is freed, the room
// is there for others.
func (r *bufferPool) newMessage(x *buffer, data []byte, compressed bool) *call.Message {
	m := &call.Message{Data: data, Compressed: compressed}
	if x != nil {
		m.Release = func() { r.put(x) }
	}
	return m
}
