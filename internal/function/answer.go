package function

// maxAllocated is how many pieces of an arena, not next to each other, a call may take.
const maxAllocated = 4096

// respond appends to the response. A place that was named before is forgotten.
func (s *slot) respond(b []byte) bool {
	if len(b) > int(s.limits.Response)-len(s.response) {
		s.tooLarge = true
		return false
	}
	s.responseAt = nil
	s.copied += int64(len(b))
	s.meter.move(len(b))
	s.response = append(s.response, b...)
	return true
}

// respondPlace makes a part of the arena the response. What was written before is
// forgotten.
func (s *slot) respondPlace(p Place) bool {
	if !s.shows(p) {
		return false
	}
	s.response, s.responseAt = nil, &p
	return true
}

// alloc takes room of the arena. A call that fails gives it back: nobody knows of it.
func (s *slot) alloc(size int) (int, bool) {
	if !s.shows(Place{}) || s.readOnly || len(s.allocated) == maxAllocated {
		return 0, false
	}
	p, ok := s.arena.Alloc(size)
	if ok && !s.shows(p) {
		s.arena.Free(p)
		ok = false
	}
	if !ok {
		return 0, false
	}
	s.meter.move(size) // it was made zero
	p.Size = aligned(p.Size)
	if n := len(s.allocated); n > 0 && s.allocated[n-1].Offset+s.allocated[n-1].Size == p.Offset {
		s.allocated[n-1].Size += p.Size
	} else {
		s.allocated = append(s.allocated, p)
	}
	return p.Offset, true
}

// forget gives back what a failed call allocated.
func (s *slot) forget() {
	for _, p := range s.allocated {
		s.arena.Free(p)
	}
	s.allocated = nil
}

// answer takes the response from the slot.
func (s *slot) answer() Response {
	p := Response{Body: s.response, Place: s.responseAt, Stdout: s.stdout.take(), Stderr: s.stderr.take()}
	if p.Place != nil {
		s.pointer += int64(p.Place.Size)
	}
	return p
}

// text is the response of a function that says that it failed.
func (s *slot) text() string {
	if s.responseAt == nil {
		return string(s.response)
	}
	b, _ := s.arena.At(*s.responseAt) // it was checked
	return string(b[:min(len(b), int(s.limits.Response))])
}
