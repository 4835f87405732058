package optimize

const (
	// maxDuplicated bounds the code that replaces a jump, in bytes.
	maxDuplicated = 256
	// maxTail bounds the segments that replace a jump.
	maxTail = 32
)

// tailDuplicate is a run of segments that is copied in place of a jump to the first.
type tailDuplicate struct {
	from, first, last int
	labels            []int // of the segments after the first
}

// duplicableTail returns the last of the segments whose copy could replace a jump into the middle
// of a loop: the segments up to where control leaves for elsewhere. size is the size of their code.
func (s *relooper) duplicableTail(from, to int) (last, size int, ok bool) {
	target := s.forwardTarget(from, to)
	for last = to; ; last++ {
		s.budget.spend(1)
		size += s.loop.segments[last].to - s.loop.segments[last].from
		if size > maxDuplicated || last-to >= maxTail {
			return last, size, false
		}
		if !s.loop.flows[last].fallsThrough {
			break
		}
		if last == target.last {
			if last+1 == len(s.loop.segments) {
				return last, size, false // control leaves the dispatch loop there
			}
			break
		}
	}
	for i := to; i <= last; i++ {
		for _, e := range s.loop.segments[i].rewrites {
			if e.kind == jumpSite && !s.canDuplicate(from, i, s.loop.targetOf(e.value), last, target) {
				return last, size, false
			}
		}
	}
	return last, size, true
}

// canDuplicate reports whether a jump in segment i of a copy can be written there without a table:
// within the copy, or to the beginning of a loop or segment outside.
func (s *relooper) canDuplicate(from, i, to, last int, target *region) bool {
	switch {
	case to > i && to <= last:
		return true
	case target.contains(to):
		return to == target.first
	}
	return to <= from || s.forwardTarget(from, to).first == to
}

// emitDuplicate writes the code from one segment to another in place of a jump.
func (s *relooper) emitDuplicate(from, first, last int) {
	c := &tailDuplicate{from: from, first: first, last: last, labels: make([]int, last-first)}
	for i := last; i > first; i-- {
		c.labels[i-first-1] = s.height
		s.openBlock(opBlock, typeVoid)
	}
	s.duplicate = c
	for i := first; i <= last; i++ {
		if i > first {
			s.closeBlock()
		}
		s.emitSegment(i)
	}
	s.duplicate = nil
	if s.loop.flows[last].fallsThrough {
		s.emitJumpTo(from, last+1, int32(s.firstEntry(last+1)))
	}
}

// labelInDuplicate returns the label of a segment within the copy that is being written.
func (s *relooper) labelInDuplicate(to int) (label int, ok bool) {
	if c := s.duplicate; c != nil && to > c.first && to <= c.last {
		return c.labels[to-c.first-1], true
	}
	return 0, false
}
