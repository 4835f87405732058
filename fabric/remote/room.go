package remote

import (
	"math/bits"
	"sync"

	"github.com/outboard-run/outboard/fabric/call"
)

// The length of a message is only a claim of the peer: memory for all of it is there
// once a part of it has come.
const (
	// firstRoom is how much is set aside for a message before any of it has come.
	firstRoom = 256 << 10
	// believed is which part of a message must have come: a tenth.
	believed = 10
)

// nextRoom is how much room a message of that length gets when have bytes of it have
// come and fill what it had. Each part is copied to the next: few, and small ones
// before the last, so that little is copied, and never much at once.
func nextRoom(have, length int) int {
	if have >= length/believed {
		return length
	}
	return min(have*believed, length/believed+1)
}

// Rooms are kept for the next messages, as memory from the heap would have to be
// zeroed first, by who reads the connection: everything else would wait for that.
const (
	leastKept = 64 << 10 // smaller ones come from the heap
	mostKept  = 1 << 30
	// Of the sizes between a power of two and the next, rooms have four.
	steps = 4
)

// rooms has a pool for each size. The garbage collector empties them.
type rooms [steps * 15]sync.Pool

// kept is what all connections of the process share.
var kept rooms

// A room is memory for a message.
type room struct {
	data  []byte
	class int // below 0: it is not kept
}

// sizeClass is the least class that has room for n bytes, and its size.
func sizeClass(n int) (class, size int) {
	if n <= leastKept {
		return 0, leastKept
	}
	power := bits.Len(uint((n-1)/leastKept)) - 1
	base := leastKept << power
	step := base / steps
	above := (n - base + step - 1) / step
	return power*steps + above, base + above*step
}

// get returns a room of at least n bytes, whose content is anything.
func (r *rooms) get(n int) *room {
	if n < leastKept || n > mostKept {
		return &room{make([]byte, n), -1}
	}
	class, size := sizeClass(n)
	if old, ok := r[class].Get().(*room); ok {
		return old
	}
	return &room{make([]byte, size), class}
}

// put takes a room back.
func (r *rooms) put(x *room) {
	if x != nil && x.class >= 0 {
		r[x.class].Put(x)
	}
}

// messageIn is a message that lies in x, if that is not nil: with the last use of it
// the room is free again.
func messageIn(x *room, data []byte, compressed bool) *call.Message {
	m := &call.Message{Data: data, Compressed: compressed}
	if x != nil && x.class >= 0 {
		m.Release = func() { kept.put(x) }
	}
	return m
}
