package shared

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/outboard-run/outboard"
)

// maxBlock returns the size of the largest block of a heap: a fraction, so that one large message
// leaves space for others.
func (g geometry) maxBlock() int { return min(1<<20, g.heap/8) }

// maxRun returns the size of the largest message that is sent from adjacent blocks.
func (g geometry) maxRun() int { return g.heap / 4 }

// order returns the order of the smallest block that holds size bytes: the block has 1<<order
// units.
func order(size int) int { return bits.Len(uint((size - 1) / unit)) }

// The states of a unit, which belong to the block that begins there.
const (
	unitInner  = iota // no block begins here
	unitFree          // in the free list of its order
	unitCached        // free, in the cache, not merged with its buddy
	unitLent          // allocated, being filled by this side
	unitPosted        // owned by the peer
	maxCached  = 8
)

// An allocator manages the heap that this side sends from: a buddy allocator whose tables are
// private. The peer can only return blocks, and every return is checked.
type allocator struct {
	geometry
	base    unsafe.Pointer
	returns unsafe.Pointer
	words   struct{ returned, want *atomic.Uint32 }

	mu        sync.Mutex
	reclaimed uint32 // entries read from the ring of returns
	used      int    // units in allocated blocks
	blocks    []block
	lists     [][]uint32 // free blocks of each order; entries may be stale
	cache     [][]uint32
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

// alloc returns a block for size bytes; ok is false when the heap is full.
func (a *allocator) alloc(size int) (piece ref, ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.blocks == nil {
		a.format()
	}
	if err := a.reclaim(); err != nil {
		return ref{}, false, err
	}
	at, ok := a.allocateBlock(order(size))
	if !ok {
		a.words.want.Store(1)
		if err := a.reclaim(); err != nil {
			return ref{}, false, err
		}
		if at, ok = a.allocateBlock(order(size)); !ok {
			return ref{}, false, nil
		}
	}
	b := &a.blocks[at]
	b.gen, b.state, b.order = b.gen+1, unitLent, uint8(order(size))
	a.used += 1 << b.order
	return ref{at, b.gen}, true, nil
}

func (a *allocator) format() {
	top := order(a.maxBlock())
	a.blocks = make([]block, a.units())
	a.lists, a.cache = make([][]uint32, top+1), make([][]uint32, top+1)
	for at := a.units() - 1<<top; at >= 0; at -= 1 << top {
		a.push(uint32(at), top)
	}
}

func (a *allocator) push(at uint32, order int) {
	a.blocks[at].state, a.blocks[at].order = unitFree, uint8(order)
	a.lists[order] = append(a.lists[order], at)
}

// allocateBlock removes a free block: from the cache, which is warm, or else from the smallest free
// block that is large enough, which it splits.
func (a *allocator) allocateBlock(order int) (uint32, bool) {
	if k := a.cache[order]; len(k) > 0 {
		a.cache[order] = k[:len(k)-1]
		return k[len(k)-1], true
	}
	if at, ok := a.split(order); ok {
		return at, true
	}
	a.mergeCached()
	return a.split(order)
}

func (a *allocator) split(order int) (uint32, bool) {
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

// allocRun returns adjacent largest blocks that hold size bytes together, none if that would leave the
// heap short.
func (a *allocator) allocRun(size int) ([]ref, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.blocks == nil {
		a.format()
	}
	if err := a.reclaim(); err != nil {
		return nil, err
	}
	n := (size + a.maxBlock() - 1) / a.maxBlock()
	step := a.maxBlock() / unit
	if a.used+n*step > a.units()/2 {
		return nil, nil
	}
	at, ok := a.findRun(n, step)
	if !ok {
		a.mergeCached()
		if at, ok = a.findRun(n, step); !ok {
			return nil, nil
		}
	}
	run := make([]ref, n)
	for i := range run {
		run[i] = a.takeLargest(at + uint32(i*step))
	}
	return run, nil
}

// findRun finds n adjacent largest blocks that are free.
func (a *allocator) findRun(n, step int) (uint32, bool) {
	found := 0
	for at := 0; at < a.units(); at += step {
		found++
		if b := &a.blocks[at]; b.state != unitFree && b.state != unitCached || 1<<b.order != step {
			found = 0
		}
		if found == n {
			return uint32(at - (n-1)*step), true
		}
	}
	return 0, false
}

// takeLargest allocates a largest block that is free. Its entry in the free list becomes stale.
func (a *allocator) takeLargest(at uint32) ref {
	b := &a.blocks[at]
	if top := len(a.cache) - 1; b.state == unitCached {
		a.cache[top] = slices.DeleteFunc(a.cache[top], func(cached uint32) bool { return cached == at })
	}
	b.gen, b.state = b.gen+1, unitLent
	a.used += 1 << b.order
	return ref{at, b.gen}
}

// pop removes a block from the free list of its order. It skips stale entries, whose blocks were
// merged.
func (a *allocator) pop(order int) (uint32, bool) {
	for l := a.lists[order]; len(l) > 0; l = a.lists[order] {
		at := l[len(l)-1]
		a.lists[order] = l[:len(l)-1]
		if b := &a.blocks[at]; b.state == unitFree && int(b.order) == order {
			b.state = unitInner
			return at, true
		}
	}
	return 0, false
}

func (a *allocator) mergeCached() {
	for o, k := range a.cache {
		for _, at := range k {
			a.merge(at, o)
		}
		a.cache[o] = k[:0]
	}
}

// merge frees a block together with its free buddies.
func (a *allocator) merge(at uint32, o int) {
	for ; o < len(a.lists)-1; o++ {
		buddy := &a.blocks[at^1<<o]
		if buddy.state != unitFree || int(buddy.order) != o {
			break
		}
		buddy.state = unitInner
		a.blocks[at].state = unitInner
		at &^= 1 << o
	}
	a.push(at, o)
	a.compact(o)
}

// compact drops stale entries when they have become many.
func (a *allocator) compact(order int) {
	l := a.lists[order]
	if len(l) <= a.units()>>order {
		return
	}
	kept := l[:0]
	for _, at := range l {
		if b := &a.blocks[at]; b.state == unitFree && int(b.order) == order {
			b.state = unitInner // a duplicate entry of the same block is dropped
			kept = append(kept, at)
		}
	}
	for _, at := range kept {
		a.blocks[at].state = unitFree
	}
	a.lists[order] = kept
}

// release frees a block.
func (a *allocator) release(at uint32) {
	b := &a.blocks[at]
	a.used -= 1 << b.order
	if o := int(b.order); len(a.cache[o]) < maxCached {
		b.state = unitCached
		a.cache[o] = append(a.cache[o], at)
		return
	}
	a.merge(at, int(b.order))
}

// free releases a block that was lent and not posted.
func (a *allocator) free(piece ref) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := &a.blocks[piece.unit]; b.gen == piece.gen && b.state == unitLent {
		a.release(piece.unit)
	}
}

// setState changes the owner of an allocated block. It reports whether the heap is short.
func (a *allocator) setState(piece ref, state uint8) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocks[piece.unit].state = state
	return a.short()
}

func (a *allocator) short() bool { return a.used > a.units()/2 }

// reclaim releases the blocks that the peer has returned.
func (a *allocator) reclaim() error {
	returned := a.words.returned.Load()
	if returned == a.reclaimed {
		return nil
	}
	n := uint32(a.units())
	if returned-a.reclaimed > n {
		return outboard.Errorf(outboard.Protocol, "heap", "the peer returned %d blocks of %d", returned-a.reclaimed, n)
	}
	for ; a.reclaimed != returned; a.reclaimed++ {
		entry := (*atomic.Uint64)(unsafe.Add(a.returns, uintptr(a.reclaimed&(n-1))*8)).Load()
		piece := ref{uint32(entry), uint32(entry >> 32)}
		if piece.unit >= n || a.blocks[piece.unit].state != unitPosted || a.blocks[piece.unit].gen != piece.gen {
			return outboard.Errorf(outboard.Protocol, "heap", "the peer returned unit %d of generation %d, which it does not own", piece.unit, piece.gen)
		}
		a.release(piece.unit)
	}
	return nil
}

// bytes returns the memory of a block.
func (a *allocator) bytes(piece ref) []byte {
	size := unit << a.blocks[piece.unit].order
	return unsafe.Slice((*byte)(unsafe.Add(a.base, int(piece.unit)*unit)), size)
}

// owner returns the lent block that b begins with.
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
	if len(a.blocks) == 0 || a.blocks[at/unit].state != unitLent {
		return ref{}, false
	}
	return ref{uint32(at / unit), a.blocks[at/unit].gen}, true
}

// A peerHeap accesses the peer's heap and returns its blocks.
type peerHeap struct {
	base    unsafe.Pointer
	returns unsafe.Pointer
	n       uint32
	words   struct{ returned, want *atomic.Uint32 }
	region  *region
	bell    int // the direction whose bell wakes the owner

	mu       sync.Mutex
	returned uint32
}

func newPeerHeap(r *region, direction int) *peerHeap {
	b := &peerHeap{base: r.heapOf(direction), returns: r.returnsOf(direction), n: uint32(r.units()), region: r, bell: direction ^ 1}
	b.words.returned, b.words.want = r.word(direction, offReturned), r.word(direction, offWant)
	return b
}

// free returns a block to its owner.
func (b *peerHeap) free(piece ref) {
	b.mu.Lock()
	entry := (*atomic.Uint64)(unsafe.Add(b.returns, uintptr(b.returned&(b.n-1))*8))
	entry.Store(uint64(piece.unit) | uint64(piece.gen)<<32)
	b.returned++
	b.words.returned.Store(b.returned)
	b.mu.Unlock()
	notifyWaiting(b.words.want, b.region.bell(b.bell))
}

func (b *peerHeap) bytes(piece ref, length uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(b.base, int(piece.unit)*unit)), int(length))
}
