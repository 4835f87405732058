package shared

import (
	"slices"
	"unsafe"

	"github.com/outboard-run/outboard/fabric/call"
)

// receive makes the message that d brings. What is in the slot is copied; what is
// in the peer's heap is read there, unless the peer is short of memory.
func (e *end) receive(d *desc, slot unsafe.Pointer) *call.Message {
	var m *call.Message
	switch {
	case d.data.unit == nowhere:
		start := 0
		if d.head.unit == nowhere {
			start = int(d.headLen)
		}
		m = copied(inlineOf(slot)[start : start+int(d.dataLen)])
	case d.flags&flagCopy != 0:
		m = copied(e.theirs.bytes(d.data, d.dataLen))
		e.theirs.give(d.data)
	default:
		m = e.leased(d)
	}
	m.Compressed = d.flags&flagCompressed != 0
	return m
}

// copied is a message with a copy of b.
func copied(b []byte) *call.Message {
	m := private(len(b))
	copy(m.Data, b)
	return m
}

// private is a message in memory of our own, a small one in one piece with its data.
func private(size int) *call.Message {
	switch {
	case size <= 64:
		s := new(struct {
			m    call.Message
			data [64]byte
		})
		s.m.Data = s.data[:size]
		return &s.m
	case size <= 192:
		s := new(struct {
			m    call.Message
			data [192]byte
		})
		s.m.Data = s.data[:size]
		return &s.m
	default:
		return &call.Message{Data: make([]byte, size)}
	}
}

// leased refers to the peer's heap, and keeps the region mapped.
func (e *end) leased(d *desc) *call.Message {
	piece := d.data
	e.region.retain()
	b := e.theirs.bytes(piece, d.dataLen)
	return &call.Message{Data: slices.Clip(b), Release: func() {
		e.theirs.give(piece)
		e.region.release()
	}}
}

// header copies a descriptor's head.
func (e *end) header(d *desc, slot unsafe.Pointer) []byte {
	if d.head.unit == nowhere {
		if d.headLen == 0 {
			return nil
		}
		return append([]byte(nil), inlineOf(slot)[:d.headLen]...)
	}
	b := append([]byte(nil), e.theirs.bytes(d.head, d.headLen)...)
	e.theirs.give(d.head)
	return b
}

// discard gives back what a descriptor that nobody waits for refers to.
func (e *end) discard(d *desc) {
	for _, piece := range []ref{d.head, d.data} {
		if piece.unit != nowhere {
			e.theirs.give(piece)
		}
	}
}
