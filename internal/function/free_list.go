package function

import "slices"

// arenaAlign is the alignment of allocations in an arena.
const arenaAlign = 16

// freeList is a first-fit allocator: the free extents by address, neighbours merged.
type freeList struct{ free []Extent }

func newFreeList(size int) freeList { return freeList{[]Extent{{0, size}}} }

func aligned(size int) int { return (max(size, 1) + arenaAlign - 1) &^ (arenaAlign - 1) }

// allocate returns the offset of the first extent with size free bytes.
func (r *freeList) allocate(size int) (int, bool) {
	if size < 0 {
		return 0, false
	}
	size = aligned(size)
	for i := range r.free {
		f := &r.free[i]
		if f.Size < size {
			continue
		}
		at := f.Offset
		f.Offset, f.Size = at+size, f.Size-size
		if f.Size == 0 {
			r.free = slices.Delete(r.free, i, i+1)
		}
		return at, true
	}
	return 0, false
}

// release frees an extent that allocate returned.
func (r *freeList) release(p Extent) {
	p.Size = aligned(p.Size)
	i, _ := slices.BinarySearchFunc(r.free, p, func(a, b Extent) int { return a.Offset - b.Offset })
	r.free = slices.Insert(r.free, i, p)
	r.merge(i)
	if i > 0 {
		r.merge(i - 1)
	}
}

// merge joins an extent with the next one if they touch.
func (r *freeList) merge(i int) {
	if i+1 < len(r.free) && r.free[i].Offset+r.free[i].Size == r.free[i+1].Offset {
		r.free[i].Size += r.free[i+1].Size
		r.free = slices.Delete(r.free, i+1, i+2)
	}
}
