package wasmbin

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrTruncated is the cause of an error of a Reader whose bytes end too early.
var ErrTruncated = errors.New("ends too early")

// Reader decodes Data from Off on. The first error stays in Err, and all later reads return zero.
type Reader struct {
	Data []byte
	Off  int
	Err  error
}

// Failf sets Err unless there is one already.
func (r *Reader) Failf(format string, args ...any) {
	if r.Err == nil {
		r.Err = fmt.Errorf(format, args...)
	}
}

// More reports whether there are bytes left and no error.
func (r *Reader) More() bool { return r.Err == nil && r.Off < len(r.Data) }

// Left returns the number of remaining bytes.
func (r *Reader) Left() int { return len(r.Data) - r.Off }

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if r.Err != nil || r.Off >= len(r.Data) {
		r.Failf("%w", ErrTruncated)
		return 0
	}
	b := r.Data[r.Off]
	r.Off++
	return b
}

// Bytes reads n bytes. The result is a part of Data, and nil only after an error.
func (r *Reader) Bytes(n int) []byte {
	if r.Err != nil || n < 0 || n > r.Left() {
		r.Failf("%w", ErrTruncated)
		return nil
	}
	b := r.Data[r.Off : r.Off+n : r.Off+n]
	r.Off += n
	return b
}

// U32 reads an unsigned LEB128 number of at most 32 bits (section 5.2.2).
func (r *Reader) U32() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.Byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.Failf("number at byte %d does not fit in 32 bits", r.Off)
	return 0
}

// Signed reads a signed LEB128 number of at most the given bits (section 5.2.2).
func (r *Reader) Signed(bits int) int64 {
	var v int64
	for shift := 0; shift < bits; shift += 7 {
		b := r.Byte()
		v |= int64(b&0x7f) << shift
		if b >= 0x80 {
			continue
		}
		if shift += 7; shift < 64 {
			v = v << (64 - shift) >> (64 - shift)
		}
		if bits < 64 && (v >= 1<<(bits-1) || v < -1<<(bits-1)) {
			break
		}
		return v
	}
	r.Failf("number at byte %d does not fit in %d bits", r.Off, bits)
	return 0
}

// Count reads the length of a vector whose elements take at least size bytes each. A length beyond
// the remaining bytes is an error.
func (r *Reader) Count(size int) int {
	n := r.U32()
	if r.Err == nil && uint64(n)*uint64(size) > uint64(r.Left()) {
		r.Failf("list of %d elements: %w", n, ErrTruncated)
	}
	if r.Err != nil {
		return 0
	}
	return int(n)
}

// Name reads a name, which is UTF-8 (section 5.2.4).
func (r *Reader) Name() string {
	b := r.Bytes(r.Count(1))
	if r.Err == nil && !utf8.Valid(b) {
		r.Failf("name %q is not UTF-8", b)
	}
	return string(b)
}

// Index reads an index below limit. kind names the index space in the error.
func (r *Reader) Index(kind string, limit int) uint32 {
	v := r.U32()
	if r.Err == nil && int64(v) >= int64(limit) {
		r.Failf("%s %d of %d", kind, v, limit)
	}
	return v
}

// ValueType reads a value type and returns its first byte.
func (r *Reader) ValueType() byte {
	t := r.Byte()
	switch t {
	case TypeI32, TypeI64, TypeF32, TypeF64, TypeV128, TypeFunc, TypeExtern, TypeExn:
	case TypeRefNull, TypeRef:
		r.Signed(33)
	default:
		r.Failf("value type 0x%02x is of no feature that is known here", t)
	}
	return t
}

// ValueTypes reads a vector of value types and returns its length.
func (r *Reader) ValueTypes() int {
	n := r.Count(1)
	for range n {
		r.ValueType()
	}
	return n
}

// Locals are the declarations of a function's local variables (section 5.4.7).
type Locals struct {
	Groups int    // number of groups of variables of one type
	At     int    // offset of the first group
	Count  uint64 // number of variables, without the parameters
}

// Locals reads the declarations at the beginning of a function body. Their number is not bounded: a
// few bytes can declare 2^32 variables for each group.
func (r *Reader) Locals() Locals {
	l := Locals{Groups: r.Count(2)}
	l.At = r.Off
	for range l.Groups {
		l.Count += uint64(r.U32())
		r.ValueType()
	}
	return l
}
