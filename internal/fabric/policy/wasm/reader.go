package wasm

import (
	"errors"
	"fmt"
)

// Instructions that have a meaning here.
const (
	opBlock = 0x02
	opLoop  = 0x03
	opIf    = 0x04
	opEnd   = 0x0b
)

// A reader reads a module. After an error all it reads is zero.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 || r.err != nil {
		r.fail(errShort)
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.rest)) {
		r.fail(errShort)
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// u32 reads an unsigned LEB128 of 32 bits.
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
	r.fail(errors.New("a number is too long"))
	return 0
}

// leb skips a LEB128 of up to 64 bits.
func (r *reader) leb() {
	for range 10 {
		if r.byte() < 0x80 {
			return
		}
	}
	r.fail(errors.New("a number is too long"))
}

// instruction reads an instruction with what belongs to it, and returns its first
// byte (WebAssembly 2.0, 5.4).
func (r *reader) instruction() byte {
	op := r.byte()
	switch {
	case op <= 0x01, op == 0x05, op == opEnd, op == 0x0f, op == 0x1a, op == 0x1b, op == 0xd1:
	case op >= 0x45 && op <= 0xc4:
	case op >= opBlock && op <= opIf, op == 0x41, op == 0x42, op == 0xd0:
		r.leb()
	case op == 0x0c, op == 0x0d, op == 0x10, op >= 0x20 && op <= 0x25, op == 0xd2:
		r.u32()
	case op == 0x0e:
		r.numbers()
		r.u32()
	case op == 0x1c:
		r.take(r.u32())
	case op == 0x11, op >= 0x28 && op <= 0x3e:
		r.u32()
		r.u32()
	case op == 0x3f, op == 0x40:
		r.byte()
	case op == 0x43:
		r.take(4)
	case op == 0x44:
		r.take(8)
	case op == 0xfc:
		r.prefixed()
	default:
		r.refuse(fmt.Sprintf("%#x", op))
	}
	return op
}

func (r *reader) numbers() {
	for n := r.u32(); n > 0 && r.err == nil; n-- {
		r.u32()
	}
}

// prefixed reads the rest of an instruction that begins with 0xfc.
func (r *reader) prefixed() {
	switch op := r.u32(); op {
	case 0, 1, 2, 3, 4, 5, 6, 7:
	case 8: // memory.init
		r.u32()
		r.byte()
	case 10: // memory.copy
		r.take(2)
	case 11: // memory.fill
		r.byte()
	case 16: // table.size
		r.u32()
	default:
		r.refuse(fmt.Sprintf("0xfc %d", op))
	}
}

// refuse names an instruction that is not allowed: vectors, threads and the like, and
// those that change tables or drop segments, which could not be undone after a call.
func (r *reader) refuse(op string) {
	if r.err == nil {
		r.fail(fmt.Errorf("instruction %s is not allowed", op))
	}
}
