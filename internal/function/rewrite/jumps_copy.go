package rewrite

// Go's compiler puts a loop's condition at its end, and enters the loop there. A jump to
// such a place becomes a copy of the condition: it ends with a jump to the loop's
// beginning or past its end, so that nobody enters the loop in its middle.

// maxCopy is how many bytes of code a jump may become.
const maxCopy = 256

// A copied is segments that are written once more in place of a jump to the first.
type copied struct {
	from, first, last int
	labels            []int // of those after the first
}

// chain returns the segments whose copy could stand for a jump into the middle of a
// loop: those up to where the code goes elsewhere. size is that of their code.
func (s *straightener) chain(from, to int) (last, size int, ok bool) {
	part := s.ahead(from, to)
	for last = to; ; last++ {
		size += s.t.spans[last].to - s.t.spans[last].from
		if size > maxCopy {
			return last, size, false
		}
		if !s.t.flows[last].through {
			break
		}
		if last == part.last {
			if last+1 == len(s.t.spans) {
				return last, size, false // it leads out of everything
			}
			break
		}
	}
	for i := to; i <= last; i++ {
		for _, e := range s.t.spans[i].edits {
			if e.kind == editJump && !s.mayCopy(from, i, s.t.segment(e.value), last, part) {
				return last, size, false
			}
		}
	}
	return last, size, true
}

// mayCopy says whether a jump in segment i of a copy can be written there, without a
// table: it goes on in the copy, or to the beginning of a loop or segment outside.
func (s *straightener) mayCopy(from, i, to, last int, part *region) bool {
	switch {
	case to > i && to <= last:
		return true
	case part.contains(to):
		return to == part.first
	}
	return to <= from || s.ahead(from, to).first == to
}

// copyOf writes the code from one segment to another in place of a jump.
func (s *straightener) copyOf(from, first, last int) {
	c := &copied{from: from, first: first, last: last, labels: make([]int, last-first)}
	for i := last; i > first; i-- {
		c.labels[i-first-1] = s.height
		s.open(opBlock, voidType)
	}
	s.copy = c
	for i := first; i <= last; i++ {
		if i > first {
			s.close()
		}
		s.segment(i)
	}
	s.copy = nil
	if s.t.flows[last].through {
		s.goTo(from, last+1, s.number(last+1))
	}
}

// inCopy returns the label of a segment within the copy that is being written.
func (s *straightener) inCopy(to int) (label int, ok bool) {
	if c := s.copy; c != nil && to > c.first && to <= c.last {
		return c.labels[to-c.first-1], true
	}
	return 0, false
}

// number is one that stands for a segment.
func (s *straightener) number(segment int) int32 { return int32(s.search(segment)) }
