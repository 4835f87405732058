package shared

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/outboard-run/outboard"
)

// maxBlock is the largest piece of a heap: so many fit that one big message
// leaves room for others.
func (g geometry) maxBlock() int { return min(1<<20, g.heap/8) }

// order is the power of two of units that hold size bytes.
func order(size int) int { return bits.Len(uint((size - 1) / unit)) }

// The states of the first unit of a block.
const (
	inner   = iota // no block begins here
	free           // in the list of its order
	kept           // free, in the short list that is not joined with its neighbours
	lent           // filled by us
	posted         // the peer has it
	maxKept = 8
)

// An allocator hands out the pieces of the heap that we send from: a buddy
// allocator whose tables are private. The peer only says what it gives back, and is
// checked.
type allocator struct {
	geometry
	base    unsafe.Pointer
	returns unsafe.Pointer
	words   struct{ returned, want *atomic.Uint32 }

	mu     sync.Mutex
	taken  uint32 // entries of the ring of returns
	used   int    // units
	blocks []block
	lists  [][]uint32 // free blocks of each order; entries may be out of date
	keep   [][]uint32
}

type block struct {
	gen   uint32
	state uint8
	order uint8
}

func newAllocator(r *region, direction int) *allocator {
	a := &allocator{geometry: r.geometry, base: r.heapOf(direction), returns: r.returnsOf(direction)}
	a.words.returned, a.words.want = r.word(direction, offReturned), r.word(direction, offWant)
	return a
}

// alloc returns a piece for size bytes; ok is false when there is none.
func (a *allocator) alloc(size int) (piece ref, ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.blocks == nil {
		a.format()
	}
	if err := a.collect(); err != nil {
		return ref{}, false, err
	}
	at, ok := a.find(order(size))
	if !ok {
		a.words.want.Store(1)
		if err := a.collect(); err != nil {
			return ref{}, false, err
		}
		if at, ok = a.find(order(size)); !ok {
			return ref{}, false, nil
		}
	}
	b := &a.blocks[at]
	b.gen, b.state, b.order = b.gen+1, lent, uint8(order(size))
	a.used += 1 << b.order
	return ref{at, b.gen}, true, nil
}

func (a *allocator) format() {
	top := order(a.maxBlock())
	a.blocks = make([]block, a.units())
	a.lists, a.keep = make([][]uint32, top+1), make([][]uint32, top+1)
	for at := a.units() - 1<<top; at >= 0; at -= 1 << top {
		a.push(uint32(at), top)
	}
}

func (a *allocator) push(at uint32, order int) {
	a.blocks[at].state, a.blocks[at].order = free, uint8(order)
	a.lists[order] = append(a.lists[order], at)
}

// find takes a block out of the free ones: one that was used just now, which
// is warm, else the smallest that is large enough, cut.
func (a *allocator) find(order int) (uint32, bool) {
	if k := a.keep[order]; len(k) > 0 {
		a.keep[order] = k[:len(k)-1]
		return k[len(k)-1], true
	}
	if at, ok := a.cut(order); ok {
		return at, true
	}
	a.joinKept()
	return a.cut(order)
}

func (a *allocator) cut(order int) (uint32, bool) {
	for o := order; o < len(a.lists); o++ {
		at, ok := a.pop(o)
		if !ok {
			continue
		}
		for o > order {
			o--
			a.push(at+1<<o, o)
		}
		return at, true
	}
	return 0, false
}

// pop skips entries of blocks that were joined since.
func (a *allocator) pop(order int) (uint32, bool) {
	for l := a.lists[order]; len(l) > 0; l = a.lists[order] {
		at := l[len(l)-1]
		a.lists[order] = l[:len(l)-1]
		if b := &a.blocks[at]; b.state == free && int(b.order) == order {
			b.state = inner
			return at, true
		}
	}
	return 0, false
}

func (a *allocator) joinKept() {
	for o, k := range a.keep {
		for _, at := range k {
			a.join(at, o)
		}
		a.keep[o] = k[:0]
	}
}

// join frees a block together with its free neighbours.
func (a *allocator) join(at uint32, o int) {
	for ; o < len(a.lists)-1; o++ {
		buddy := &a.blocks[at^1<<o]
		if buddy.state != free || int(buddy.order) != o {
			break
		}
		buddy.state = inner
		a.blocks[at].state = inner
		at &^= 1 << o
	}
	a.push(at, o)
	a.tidy(o)
}

// tidy drops entries that are out of date when they have become many.
func (a *allocator) tidy(order int) {
	l := a.lists[order]
	if len(l) <= a.units()>>order {
		return
	}
	kept := l[:0]
	for _, at := range l {
		if b := &a.blocks[at]; b.state == free && int(b.order) == order {
			b.state = inner // a second entry of the same block is dropped
			kept = append(kept, at)
		}
	}
	for _, at := range kept {
		a.blocks[at].state = free
	}
	a.lists[order] = kept
}

// drop frees a block of ours.
func (a *allocator) drop(at uint32) {
	b := &a.blocks[at]
	a.used -= 1 << b.order
	if o := int(b.order); len(a.keep[o]) < maxKept {
		b.state = kept
		a.keep[o] = append(a.keep[o], at)
		return
	}
	a.join(at, int(b.order))
}

// free gives back what was lent and not posted.
func (a *allocator) free(piece ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := &a.blocks[piece.unit]; b.gen == piece.gen && b.state == lent {
		a.drop(piece.unit)
	}
}

// hand marks a lent piece as the peer's, or takes it back. It says whether the
// heap is short.
func (a *allocator) hand(piece ref, state uint8) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocks[piece.unit].state = state
	return a.short()
}

func (a *allocator) short() bool { return a.used > a.units()/2 }

// collect takes what the peer gave back.
func (a *allocator) collect() error {
	returned := a.words.returned.Load()
	if returned == a.taken {
		return nil
	}
	n := uint32(a.units())
	if returned-a.taken > n {
		return outboard.Errorf(outboard.Protocol, "heap", "the peer gave back %d pieces of %d", returned-a.taken, n)
	}
	for ; a.taken != returned; a.taken++ {
		entry := (*atomic.Uint64)(unsafe.Add(a.returns, uintptr(a.taken&(n-1))*8)).Load()
		piece := ref{uint32(entry), uint32(entry >> 32)}
		if piece.unit >= n || a.blocks[piece.unit].state != posted || a.blocks[piece.unit].gen != piece.gen {
			return outboard.Errorf(outboard.Protocol, "heap", "the peer gave back unit %d of generation %d, which it does not have", piece.unit, piece.gen)
		}
		a.drop(piece.unit)
	}
	return nil
}

// bytes is all memory of a piece.
func (a *allocator) bytes(piece ref) []byte {
	size := unit << a.blocks[piece.unit].order
	return unsafe.Slice((*byte)(unsafe.Add(a.base, int(piece.unit)*unit)), size)
}

// owner is the lent piece that b begins with.
func (a *allocator) owner(b []byte) (ref, bool) {
	if cap(b) == 0 {
		return ref{}, false
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(a.base)
	if at >= uintptr(a.heap) || at%unit != 0 {
		return ref{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.blocks) == 0 || a.blocks[at/unit].state != lent {
		return ref{}, false
	}
	return ref{uint32(at / unit), a.blocks[at/unit].gen}, true
}

// A borrower gives pieces of the peer's heap back.
type borrower struct {
	base    unsafe.Pointer
	returns unsafe.Pointer
	n       uint32
	words   struct{ returned, want *atomic.Uint32 }
	region  *region
	bell    int // the direction whose bell wakes the owner

	mu   sync.Mutex
	gave uint32
}

func newBorrower(r *region, direction int) *borrower {
	b := &borrower{base: r.heapOf(direction), returns: r.returnsOf(direction), n: uint32(r.units()), region: r, bell: direction ^ 1}
	b.words.returned, b.words.want = r.word(direction, offReturned), r.word(direction, offWant)
	return b
}

// give returns a piece to its owner.
func (b *borrower) give(piece ref) {
	b.mu.Lock()
	entry := (*atomic.Uint64)(unsafe.Add(b.returns, uintptr(b.gave&(b.n-1))*8))
	entry.Store(uint64(piece.unit) | uint64(piece.gen)<<32)
	b.gave++
	b.words.returned.Store(b.gave)
	b.mu.Unlock()
	satisfy(b.words.want, b.region.bell(b.bell))
}

func (b *borrower) bytes(piece ref, length uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(b.base, int(piece.unit)*unit)), int(length))
}
