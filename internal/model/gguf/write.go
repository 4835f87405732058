package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// A Builder collects the metadata and tensors of a file that WriteTo writes. Its zero value is
// empty.
type Builder struct {
	pairs   []Pair
	tensors []Tensor
	data    [][]byte
}

// Set adds a metadata pair. Values are those of Pair, without ArrayHeader.
func (b *Builder) Set(key string, value any) { b.pairs = append(b.pairs, Pair{key, value}) }

// Add adds a tensor of the given dimensions, the contiguous one first, converted to type t: F32
// or Q8_0, whose first dimension is a multiple of 32.
func (b *Builder) Add(name string, t TensorType, values []float32, dimensions ...uint64) {
	var data []byte
	switch t {
	case Q8_0:
		data = quantize(values)
	default:
		t = F32
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	b.tensors = append(b.tensors, Tensor{Name: name, Type: t, Dimensions: dimensions})
	b.data = append(b.data, data)
}

// quantize converts values to blocks of 32: a scale of 16 bits and 32 signed bytes.
func quantize(values []float32) []byte {
	out := make([]byte, 0, len(values)/32*34)
	for ; len(values) >= 32; values = values[32:] {
		var most float64
		for _, v := range values[:32] {
			most = max(most, math.Abs(float64(v)))
		}
		scale := most / 127
		out = binary.LittleEndian.AppendUint16(out, half(float32(scale)))
		for _, v := range values[:32] {
			q := 0.0
			if scale > 0 {
				q = math.Round(float64(v) / scale)
			}
			out = append(out, byte(int8(q)))
		}
	}
	return out
}

// half returns the bits of the half-precision number nearest to v, which is not negative; values
// below the smallest normal number become 0.
func half(v float32) uint16 {
	bits := math.Float32bits(v)
	exponent := int(bits>>23) - 127 + 15
	switch {
	case exponent <= 0:
		return 0
	case exponent >= 31:
		return 0x7bff // the largest finite number
	}
	return uint16(exponent)<<10 + uint16((bits>>13)&0x3ff) + uint16((bits>>12)&1)
}

// WriteTo writes the file.
func (b *Builder) WriteTo(w io.Writer) (int64, error) {
	e := &encoder{out: bufio.NewWriter(w)}
	e.raw([]byte(magic))
	e.uint32(3)
	e.uint64(uint64(len(b.tensors)))
	e.uint64(uint64(len(b.pairs)))
	for _, p := range b.pairs {
		e.text(p.Key)
		e.value(p.Value)
	}
	var offset uint64
	for i, t := range b.tensors {
		e.text(t.Name)
		e.uint32(uint32(len(t.Dimensions)))
		for _, d := range t.Dimensions {
			e.uint64(d)
		}
		e.uint32(uint32(t.Type))
		e.uint64(offset)
		offset += align(uint64(len(b.data[i])))
	}
	for _, data := range b.data {
		e.pad()
		e.raw(data)
	}
	e.pad()
	if e.err == nil {
		e.err = e.out.Flush()
	}
	return int64(e.written), e.err
}

func align(n uint64) uint64 { return (n + defaultAlignment - 1) / defaultAlignment * defaultAlignment }

type encoder struct {
	out     *bufio.Writer
	written uint64
	err     error
}

func (e *encoder) raw(b []byte) {
	if e.err == nil {
		_, e.err = e.out.Write(b)
		e.written += uint64(len(b))
	}
}

func (e *encoder) pad()            { e.raw(make([]byte, align(e.written)-e.written)) }
func (e *encoder) uint32(v uint32) { e.raw(binary.LittleEndian.AppendUint32(nil, v)) }
func (e *encoder) uint64(v uint64) { e.raw(binary.LittleEndian.AppendUint64(nil, v)) }

func (e *encoder) text(s string) {
	e.uint64(uint64(len(s)))
	e.raw([]byte(s))
}

func (e *encoder) value(value any) {
	switch v := value.(type) {
	case string:
		e.uint32(uint32(String))
		e.text(v)
	case uint32:
		e.uint32(uint32(Uint32))
		e.uint32(v)
	case float32:
		e.uint32(uint32(Float32))
		e.uint32(math.Float32bits(v))
	case bool:
		e.uint32(uint32(Bool))
		e.raw([]byte{map[bool]byte{true: 1}[v]})
	case []string:
		e.array(String, len(v))
		for _, s := range v {
			e.text(s)
		}
	case []float32:
		e.array(Float32, len(v))
		for _, f := range v {
			e.uint32(math.Float32bits(f))
		}
	case []int32:
		e.array(Int32, len(v))
		for _, n := range v {
			e.uint32(uint32(n))
		}
	default:
		if e.err == nil {
			e.err = fmt.Errorf("write GGUF metadata: no encoding of %T", value)
		}
	}
}

func (e *encoder) array(k Kind, n int) {
	e.uint32(uint32(Array))
	e.uint32(uint32(k))
	e.uint64(uint64(n))
}
