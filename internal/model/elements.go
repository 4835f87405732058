package model

import (
	"encoding/binary"

	"github.com/outboard-run/outboard"
)

// CheckElements returns an error unless the data of a tensor of Bytes are n elements.
func (t *Tensor) CheckElements(n int) error {
	rest := t.Data
	for i := range n {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return outboard.Errorf(outboard.Invalid, "", "tensor %q: the data of its BYTES end in element %d of %d", t.Name, i, n)
		}
		rest = rest[4+binary.LittleEndian.Uint32(rest):]
	}
	if len(rest) > 0 {
		return outboard.Errorf(outboard.Invalid, "", "tensor %q: %d bytes follow the last of its %d elements of BYTES", t.Name, len(rest), n)
	}
	return nil
}

// NotFinite returns the index of the first element that is a NaN or an infinity, -1 for none. The
// data must have whole elements.
func (t *Tensor) NotFinite() int {
	size := t.Type.Size()
	for at := 0; size > 0 && at+size <= len(t.Data); at += size {
		var bad bool
		switch t.Type {
		case FP32:
			bad = binary.LittleEndian.Uint32(t.Data[at:])&0x7f800000 == 0x7f800000
		case FP64:
			bad = binary.LittleEndian.Uint64(t.Data[at:])&0x7ff0000000000000 == 0x7ff0000000000000
		case FP16:
			bad = binary.LittleEndian.Uint16(t.Data[at:])&0x7c00 == 0x7c00
		case BF16:
			bad = binary.LittleEndian.Uint16(t.Data[at:])&0x7f80 == 0x7f80
		default:
			return -1
		}
		if bad {
			return at / size
		}
	}
	return -1
}
