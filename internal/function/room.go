package function

import "slices"

// arenaAlign is what places in an arena are aligned to.
const arenaAlign = 16

// A room is what is free of an arena: places in order, none of which touches the next.
type room struct{ free []Place }

func newRoom(size int) room { return room{[]Place{{0, size}}} }

func aligned(size int) int { return (max(size, 1) + arenaAlign - 1) &^ (arenaAlign - 1) }

// take returns where size bytes are free, the first such place.
func (r *room) take(size int) (int, bool) {
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

// give takes a place back that take gave.
func (r *room) give(p Place) {
	p.Size = aligned(p.Size)
	i, _ := slices.BinarySearchFunc(r.free, p, func(a, b Place) int { return a.Offset - b.Offset })
	r.free = slices.Insert(r.free, i, p)
	r.join(i)
	if i > 0 {
		r.join(i - 1)
	}
}

// join makes one of two neighbours that touch.
func (r *room) join(i int) {
	if i+1 < len(r.free) && r.free[i].Offset+r.free[i].Size == r.free[i+1].Offset {
		r.free[i].Size += r.free[i+1].Size
		r.free = slices.Delete(r.free, i+1, i+2)
	}
}
