package rewrite

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

var errTruncated = errors.New("ends too early")

// A reader walks over bytes that nobody vouches for. The first thing that is
// wrong stays in err, and all later reads return zero.
type reader struct {
	b   []byte
	off int
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) more() bool { return r.err == nil && r.off < len(r.b) }

func (r *reader) left() int { return len(r.b) - r.off }

func (r *reader) byte() byte {
	if r.err != nil || r.off >= len(r.b) {
		r.fail("%w", errTruncated)
		return 0
	}
	b := r.b[r.off]
	r.off++
	return b
}

func (r *reader) bytes(n int) []byte {
	if r.err != nil || n < 0 || n > r.left() {
		r.fail("%w", errTruncated)
		return nil
	}
	b := r.b[r.off : r.off+n : r.off+n]
	r.off += n
	return b
}

// u32 reads an unsigned LEB128 number of at most 32 bits.
func (r *reader) u32() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.fail("number at byte %d does not fit in 32 bits", r.off)
	return 0
}

// signed reads a signed LEB128 number of at most the given bits.
func (r *reader) signed(bits int) int64 {
	var v int64
	for shift := 0; shift < bits; shift += 7 {
		b := r.byte()
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
	r.fail("number at byte %d does not fit in %d bits", r.off, bits)
	return 0
}

// count reads the length of a list whose elements take at least size bytes each,
// so that no list can be announced longer than the bytes that are left.
func (r *reader) count(size int) int {
	n := r.u32()
	if r.err == nil && uint64(n)*uint64(size) > uint64(r.left()) {
		r.fail("list of %d elements: %w", n, errTruncated)
		return 0
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) name() string {
	b := r.bytes(r.count(1))
	if r.err == nil && !utf8.Valid(b) {
		r.fail("name %q is not UTF-8", b)
	}
	return string(b)
}

// index reads a number below limit.
func (r *reader) index(what string, limit int) uint32 {
	v := r.u32()
	if r.err == nil && int64(v) >= int64(limit) {
		r.fail("%s %d of %d", what, v, limit)
	}
	return v
}

func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendI32(b []byte, v int32) []byte {
	for v < -64 || v > 63 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}

func appendName(b []byte, name string) []byte {
	return append(appendU32(b, uint32(len(name))), name...)
}
