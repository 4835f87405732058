package rewrite

// readData takes the active segments out.
func (m *module) readData(r *reader) {
	n := r.count(2)
	m.data = make([]segment, 0, n)
	for range n {
		var s segment
		switch flags := r.u32(); flags {
		case 0:
			s.Offset = r.offset()
		case 1:
			s.passive, m.passive = true, true
		case 2:
			if r.u32() != 0 {
				r.fail("several memories: a function has one")
			}
			s.Offset = r.offset()
		default:
			r.fail("data segment with flags %d", flags)
		}
		s.Bytes = r.bytes(r.count(1))
		if r.err == nil && !s.passive && m.memories == 0 {
			r.fail("data segment without a memory")
		}
		if r.err != nil {
			return
		}
		m.data = append(m.data, s)
	}
}

// offset reads where an active segment goes. It must be one constant.
func (r *reader) offset() uint32 {
	if op := r.byte(); r.err == nil && op != 0x41 {
		r.fail("data segment whose place is computed (opcode 0x%02x): only a constant can be handled", op)
	}
	at := uint32(int32(r.signed(32)))
	if r.byte() != 0x0b {
		r.fail("data segment whose place is computed: only a constant can be handled")
	}
	return at
}

// active returns the segments that the host must write.
func (m *module) active() []Segment {
	var out []Segment
	for _, s := range m.data {
		if !s.passive && len(s.Bytes) > 0 {
			out = append(out, s.Segment)
		}
	}
	return out
}

// emitData writes the data section that stays behind: nothing, unless the code
// reads passive segments; then the active ones stay as empty ones, which is what
// they are after the start, so that the numbers hold.
func (m *module) emitData() []byte {
	out := appendU32(nil, uint32(len(m.data)))
	for _, s := range m.data {
		out = append(out, 1)
		if s.passive {
			out = appendU32(out, uint32(len(s.Bytes)))
			out = append(out, s.Bytes...)
		} else {
			out = append(out, 0)
		}
	}
	return out
}

// functionNames returns the part of the name section that names functions, or
// nil if it is not well-formed. The engine prints them in traces; it trusts the
// numbers in there, so they are checked here.
func (m *module) functionNames() []byte {
	r := &reader{b: m.names}
	for r.more() {
		id := r.byte()
		body := r.bytes(r.count(1))
		if id == 1 && r.err == nil && m.wellNamed(&reader{b: body}) {
			return body
		}
	}
	return nil
}

func (m *module) wellNamed(r *reader) bool {
	last := -1
	for range r.count(2) {
		at := int(r.index("function", m.functions))
		if r.name(); at <= last || r.err != nil {
			return false
		}
		last = at
	}
	return r.err == nil && r.left() == 0
}

func appendSection(out []byte, id byte, body []byte) []byte {
	out = append(out, id)
	out = appendU32(out, uint32(len(body)))
	return append(out, body...)
}

// padded reserves five bytes for a length that is known later.
func putPadded(at []byte, v uint32) {
	_ = at[4]
	for i := range 4 {
		at[i] = byte(v)&0x7f | 0x80
		v >>= 7
	}
	at[4] = byte(v)
}
