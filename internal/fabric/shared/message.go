package shared

import (
	"slices"
	"unsafe"

	"github.com/outboard-run/outboard/fabric/call"
)

// receive returns the message of d. Data in the slot is copied; data in the peer's heap is read in
// place, unless the heap is short.
func (h *peerHeap) receive(d *desc, slot unsafe.Pointer) *call.Message {
	var m *call.Message
	switch {
	case d.data.unit == inSlot:
		start := 0
		if d.head.unit == inSlot {
			start = int(d.headLen)
		}
		m = copyMessage(inlineOf(slot)[start : start+int(d.dataLen)])
	case d.flags&flagCopy != 0:
		m = copyMessage(h.bytes(d.data, d.dataLen))
		h.free(d.data)
	default:
		m = h.inPlace(d)
	}
	m.Compressed = d.flags&flagCompressed != 0
	return m
}

// copyMessage returns a message with a copy of b.
func copyMessage(b []byte) *call.Message {
	m := newMessage(len(b))
	copy(m.Data, b)
	return m
}

// newMessage returns a message in private memory. A small message takes a single allocation.
func newMessage(size int) *call.Message {
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

// inPlace returns a message that refers to the peer's heap and keeps the region mapped.
func (h *peerHeap) inPlace(d *desc) *call.Message {
	piece := d.data
	h.region.retain()
	b := h.bytes(piece, d.dataLen)
	return &call.Message{Data: slices.Clip(b), Release: func() {
		h.free(piece)
		h.region.release()
	}}
}

// copyHead copies the head of a descriptor and returns its heap block.
func (h *peerHeap) copyHead(d *desc, slot unsafe.Pointer) []byte {
	if d.head.unit == inSlot {
		if d.headLen == 0 {
			return nil
		}
		return append([]byte(nil), inlineOf(slot)[:d.headLen]...)
	}
	b := append([]byte(nil), h.bytes(d.head, d.headLen)...)
	h.free(d.head)
	return b
}

// returnHeap returns the blocks of a descriptor that has no receiver.
func (h *peerHeap) returnHeap(d *desc) {
	for _, piece := range []ref{d.head, d.data} {
		if piece.unit != inSlot {
			h.free(piece)
		}
	}
}
