package optimize

import "github.com/outboard-run/outboard/internal/wasmbin"

// readData reads the data segments.
func (m *module) readData(r *wasmbin.Reader) {
	n := r.Count(2)
	m.data = make([]dataSegment, 0, n)
	for range n {
		var s dataSegment
		switch flags := r.U32(); flags {
		case 0:
			s.Offset = readOffset(r)
		case 1:
			s.passive, m.passive = true, true
		case 2:
			if r.U32() != 0 {
				r.Failf("several memories: a function has one")
			}
			s.Offset = readOffset(r)
		default:
			r.Failf("data segment with flags %d", flags)
		}
		s.Bytes = r.Bytes(r.Count(1))
		if r.Err == nil && !s.passive && m.memories == 0 {
			r.Failf("data segment without a memory")
		}
		if r.Err != nil {
			return
		}
		m.data = append(m.data, s)
	}
}

// readOffset reads the offset of an active segment, which must be one constant.
func readOffset(r *wasmbin.Reader) uint32 {
	if op := r.Byte(); r.Err == nil && op != opI32Const {
		r.Failf("data segment with a computed offset (opcode 0x%02x): only a constant is supported", op)
	}
	at := uint32(int32(r.Signed(32)))
	if r.Byte() != opEnd {
		r.Failf("data segment with a computed offset: only a constant is supported")
	}
	return at
}

// activeSegments returns the segments that the host must write.
func (m *module) activeSegments() []Segment {
	var out []Segment
	for _, s := range m.data {
		if !s.passive && len(s.Bytes) > 0 {
			out = append(out, s.Segment)
		}
	}
	return out
}

// emitData writes the data section that remains where the code reads passive segments. Active
// segments remain as empty ones, as they are after instantiation, so that indexes hold.
func (m *module) emitData() []byte {
	out := wasmbin.AppendU32(nil, uint32(len(m.data)))
	for _, s := range m.data {
		out = append(out, 1)
		if s.passive {
			out = wasmbin.AppendU32(out, uint32(len(s.Bytes)))
			out = append(out, s.Bytes...)
		} else {
			out = append(out, 0)
		}
	}
	return out
}

// functionNames returns the function names of the name section, or nil if they are malformed. The
// engine prints them in stack traces and trusts the indexes in them.
func (m *module) functionNames() []byte {
	r := &wasmbin.Reader{Data: m.names}
	for r.More() {
		id := r.Byte()
		body := r.Bytes(r.Count(1))
		if id == 1 && r.Err == nil && m.validNames(&wasmbin.Reader{Data: body}) {
			return body
		}
	}
	return nil
}

func (m *module) validNames(r *wasmbin.Reader) bool {
	last := -1
	for range r.Count(2) {
		at := int(r.Index("function", m.functions))
		if r.Name(); at <= last || r.Err != nil {
			return false
		}
		last = at
	}
	return r.Err == nil && r.Left() == 0
}
