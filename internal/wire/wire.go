// Package wire encodes and decodes message bodies: sequences of little-endian
// 8-byte words, as docs/design/0001 specifies.
//
// A scalar is one word. An array is a count word, all ones for an absent array,
// then its elements, padded together to a multiple of 8 bytes. A Decoder never trusts
// a count: it compares the count with the remaining bytes before it allocates memory.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Absent is the count word of an absent array, which stands for NULL in C.
const Absent = ^uint64(0)

// ErrTruncated reports that a body ends before its last field.
var ErrTruncated = errors.New("body is truncated")

// A Decoder reads the fields of a body. The first error is kept: later reads return zero values,
// and Err or Done returns the error.
type Decoder struct {
	rest []byte
	err  error
}

// NewDecoder returns a decoder of body, which it does not copy.
func NewDecoder(body []byte) Decoder { return Decoder{rest: body} }

// Err returns the first error.
func (d *Decoder) Err() error { return d.err }

// Done returns the first error, or an error if bytes remain after the last field.
func (d *Decoder) Done() error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("body has %d bytes more than its fields", len(d.rest))
	}
	return d.err
}

// U64 reads a word.
func (d *Decoder) U64() uint64 {
	if len(d.rest) < 8 {
		d.fail(ErrTruncated)
		return 0
	}
	v := binary.LittleEndian.Uint64(d.rest)
	d.rest = d.rest[8:]
	return v
}

// U32 reads a word that must fit 32 bits.
func (d *Decoder) U32() uint32 {
	v := d.U64()
	if v > 1<<32-1 {
		d.fail(fmt.Errorf("word %#x does not fit 32 bits", v))
	}
	return uint32(v)
}

// I32 reads a word that must be a sign-extended 32-bit number.
func (d *Decoder) I32() int32 {
	v := int64(d.U64())
	if v != int64(int32(v)) {
		d.fail(fmt.Errorf("word %#x does not fit a signed 32-bit number", v))
	}
	return int32(v)
}

// I64 reads a signed word.
func (d *Decoder) I64() int64 { return int64(d.U64()) }

// Bytes reads an array of bytes, nil if absent. It shares the body's memory.
func (d *Decoder) Bytes() []byte { return d.array(1) }

// String reads an array of bytes as text, and reports whether it is present.
func (d *Decoder) String() (string, bool) {
	b := d.array(1)
	return string(b), b != nil
}

// Words reads an array of 8-byte elements, nil if absent.
func (d *Decoder) Words() []uint64 {
	raw := d.array(8)
	if raw == nil {
		return nil
	}
	words := make([]uint64, len(raw)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	return words
}

// Halves reads an array of 4-byte elements, nil if absent.
func (d *Decoder) Halves() []uint32 {
	raw := d.array(4)
	if raw == nil {
		return nil
	}
	halves := make([]uint32, len(raw)/4)
	for i := range halves {
		halves[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return halves
}

func (d *Decoder) array(element uint64) []byte {
	count := d.U64()
	if d.err != nil || count == Absent {
		return nil
	}
	if count > uint64(len(d.rest))/element {
		d.fail(ErrTruncated)
		return nil
	}
	size := int(count * element)
	padded := (size + 7) &^ 7
	if padded > len(d.rest) {
		d.fail(ErrTruncated)
		return nil
	}
	b := d.rest[:size:size]
	d.rest = d.rest[padded:]
	return b
}

func (d *Decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.rest = nil
}

// An Encoder appends fields to a body.
type Encoder struct{ body []byte }

// NewEncoder returns an encoder that appends to buf[:0].
func NewEncoder(buf []byte) Encoder { return Encoder{body: buf[:0]} }

// Body returns the encoded body.
func (e *Encoder) Body() []byte { return e.body }

// U64 writes a word.
func (e *Encoder) U64(v uint64) { e.body = binary.LittleEndian.AppendUint64(e.body, v) }

// I64 writes a signed word.
func (e *Encoder) I64(v int64) { e.U64(uint64(v)) }

// Bytes writes an array of bytes; nil is absent.
func (e *Encoder) Bytes(b []byte) {
	if b == nil {
		e.U64(Absent)
		return
	}
	e.U64(uint64(len(b)))
	e.body = append(e.body, b...)
	e.pad()
}

// Raw writes bytes without a count, padded.
func (e *Encoder) Raw(b []byte) {
	e.body = append(e.body, b...)
	e.pad()
}

// String writes text, or an absent array if present is false.
func (e *Encoder) String(s string, present bool) {
	if !present {
		e.U64(Absent)
		return
	}
	e.U64(uint64(len(s)))
	e.body = append(e.body, s...)
	e.pad()
}

// Words writes an array of 8-byte elements; nil is absent.
func (e *Encoder) Words(words []uint64) {
	if words == nil {
		e.U64(Absent)
		return
	}
	e.U64(uint64(len(words)))
	for _, w := range words {
		e.U64(w)
	}
}

// Halves writes an array of 4-byte elements; nil is absent.
func (e *Encoder) Halves(halves []uint32) {
	if halves == nil {
		e.U64(Absent)
		return
	}
	e.U64(uint64(len(halves)))
	for _, h := range halves {
		e.body = binary.LittleEndian.AppendUint32(e.body, h)
	}
	e.pad()
}

func (e *Encoder) pad() {
	for len(e.body)%8 != 0 {
		e.body = append(e.body, 0)
	}
}
