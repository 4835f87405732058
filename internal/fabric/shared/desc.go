package shared

import (
	"sync/atomic"
	"unsafe"

	"github.com/outboard-run/outboard"
)

// kind is the kind of content of a descriptor.
type kind uint8

const (
	kindCall   kind = 1 + iota // a call with its only message
	kindOpen                   // a call; messages follow
	kindData                   // a message, or a chunk of a message
	kindEnd                    // half-close: no message of the caller follows
	kindCancel                 // the caller cancels the call
	kindCredit                 // flow control: its receiver may send this many bytes more
	kindHeader                 // the response header
	kindReply                  // the only response of a call that ended with OK
	kindStatus                 // the status of a call
	kinds
)

// Flags of a descriptor.
const (
	flagCompressed   = 1 << iota // the message is compressed
	flagMore                     // more chunks of this message follow
	flagCopy                     // the sender's heap is short: copy, and return the block at once
	flagDefine                   // the head begins with the method's name, which the number stands for from now on
	flagStreaming                // call.Head.Streaming
	flagWaitForReady             // call.Head.WaitForReady
)

const (
	descSize   = 64
	inlineSize = slotSize - descSize
	// inSlot is the unit of data that lies in the slot, not in the heap.
	inSlot = ^uint32(0)
	// unnumbered is the method number of a method without a number.
	unnumbered = ^uint32(0)
	maxHead    = 64 << 10
)

// A callID names a call of a lane: the slot in the caller's table, and its generation.
type callID struct{ slot, gen uint32 }

// A ref names a block of the sender's heap. The generation lets the sender reject a stale or
// repeated return.
type ref struct{ unit, gen uint32 }

// A desc is a descriptor in private memory.
type desc struct {
	kind       kind
	flags      uint8
	code       uint16 // the status code, of kindStatus
	call       callID
	method     uint32
	headLen    uint32
	dataLen    uint32
	head, data ref
	// extra is the time left of a call in ns (0: no deadline), the bytes of a credit, or the
	// full size of a chunked message (in its first chunk).
	extra uint64
}

type words = [descSize / 4]uint32

// put writes everything except the sequence number.
func (d *desc) put(slot unsafe.Pointer) {
	w := (*words)(slot)
	w[1] = uint32(d.kind) | uint32(d.flags)<<8 | uint32(d.code)<<16
	w[2], w[3] = d.call.slot, d.call.gen
	w[4], w[5], w[6] = d.method, d.headLen, d.dataLen
	w[7], w[8] = d.head.unit, d.head.gen
	w[9], w[10] = d.data.unit, d.data.gen
	w[12], w[13] = uint32(d.extra), uint32(d.extra>>32)
}

// get copies a descriptor once; the peer may be writing to it.
func (d *desc) get(slot unsafe.Pointer) {
	w := *(*words)(slot)
	d.kind, d.flags, d.code = kind(w[1]), uint8(w[1]>>8), uint16(w[1]>>16)
	d.call = callID{w[2], w[3]}
	d.method, d.headLen, d.dataLen = w[4], w[5], w[6]
	d.head, d.data = ref{w[7], w[8]}, ref{w[9], w[10]}
	d.extra = uint64(w[12]) | uint64(w[13])<<32
}

// check validates sizes and positions.
func (d *desc) check(g geometry) error {
	if d.kind == 0 || d.kind >= kinds {
		return outboard.Errorf(outboard.Protocol, "descriptor", "kind %d", d.kind)
	}
	if d.headLen > maxHead {
		return outboard.Errorf(outboard.Protocol, "descriptor", "head of %d bytes: %d are allowed", d.headLen, maxHead)
	}
	inside := uint64(0)
	for _, part := range []struct {
		ref
		length uint32
	}{{d.head, d.headLen}, {d.data, d.dataLen}} {
		if part.unit == inSlot {
			inside += uint64(part.length)
			continue
		}
		end := uint64(part.unit)*unit + uint64(part.length)
		if end > uint64(g.heap) || int(part.length) > g.maxBlock() {
			return outboard.Errorf(outboard.Protocol, "descriptor", "%d bytes at unit %d lie outside the heap", part.length, part.unit)
		}
	}
	if inside > inlineSize {
		return outboard.Errorf(outboard.Protocol, "descriptor", "%d bytes in a slot of %d", inside, inlineSize)
	}
	return nil
}

func sequence(slot unsafe.Pointer) *atomic.Uint32 { return (*atomic.Uint32)(slot) }

func inlineOf(slot unsafe.Pointer) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(slot, descSize)), inlineSize)
}
