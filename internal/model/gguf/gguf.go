// Package gguf reads the headers of GGUF files, and writes GGUF files.
//
// The format is specified in the ggml project, docs/gguf.md; versions 2 and 3 are read,
// version 3 is written.
package gguf

import (
	"fmt"
	"math/bits"
)

// A Kind is the type of a metadata value, numbered as in the format.
type Kind uint32

// The kinds of values.
const (
	Uint8 Kind = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
)

var kindNames = [...]string{
	"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64",
}

// String returns the kind's name in the specification.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// size returns the size in bytes of a value of fixed size, 0 for strings and arrays.
func (k Kind) size() int {
	switch k {
	case Uint8, Int8, Bool:
		return 1
	case Uint16, Int16:
		return 2
	case Uint32, Int32, Float32:
		return 4
	case Uint64, Int64, Float64:
		return 8
	default:
		return 0
	}
}

// A Pair is a key and a value of the metadata. The value has one of the types uint8, int8,
// uint16, int16, uint32, int32, uint64, int64, float32, float64, bool, string, a slice of one
// of these, or ArrayHeader.
type Pair struct {
	Key   string
	Value any
}

// An ArrayHeader stands for an array that the reader has skipped since it exceeds Limits.Array:
// vocabularies have hundreds of thousands of elements.
type ArrayHeader struct {
	Kind   Kind
	Length uint64
}

// A TensorType is the type of a tensor's elements: scalars or quantized blocks.
type TensorType uint32

// The tensor types that this package writes.
const (
	F32  TensorType = 0
	F16  TensorType = 1
	Q8_0 TensorType = 8
)

// blocks are the numbers of elements and bytes in a block of each known type.
var blocks = map[TensorType]struct{ elements, bytes uint64 }{
	F32: {1, 4}, F16: {1, 2}, 2: {32, 18}, 3: {32, 20}, 6: {32, 22}, 7: {32, 24}, Q8_0: {32, 34}, 9: {32, 36},
	10: {256, 84}, 11: {256, 110}, 12: {256, 144}, 13: {256, 176}, 14: {256, 210}, 15: {256, 292},
	16: {256, 66}, 17: {256, 74}, 18: {256, 98}, 19: {256, 50}, 20: {32, 18}, 21: {256, 110}, 22: {256, 82}, 23: {256, 136},
	24: {1, 1}, 25: {1, 2}, 26: {1, 4}, 27: {1, 8}, 28: {1, 8}, 29: {256, 56}, 30: {1, 2}, 34: {256, 54}, 35: {256, 66}, 39: {32, 17},
}

// A Tensor describes one tensor. Its dimensions are in the format's order: the first is contiguous.
type Tensor struct {
	Name       string
	Type       TensorType
	Dimensions []uint64
	// Offset is the position of the data relative to File.DataOffset.
	Offset uint64
}

// Elements returns the number of elements, and false if it exceeds 64 bits.
func (t *Tensor) Elements() (uint64, bool) {
	n := uint64(1)
	for _, d := range t.Dimensions {
		high, low := bits.Mul64(n, d)
		if high != 0 {
			return 0, false
		}
		n = low
	}
	return n, true
}

// Bytes returns the size of the data, and false if the type is unknown or the shape does not
// consist of whole blocks.
func (t *Tensor) Bytes() (uint64, bool) {
	b, known := blocks[t.Type]
	n, ok := t.Elements()
	if !known || !ok || len(t.Dimensions) == 0 || t.Dimensions[0]%b.elements != 0 {
		return 0, false
	}
	high, size := bits.Mul64(n/b.elements, b.bytes)
	return size, high == 0
}

// A File is the header of a GGUF file.
type File struct {
	Version  uint32
	Metadata []Pair
	Tensors  []Tensor
	// Alignment is the alignment of tensor data in bytes.
	Alignment uint64
	// DataOffset is the position in the file where tensor data begins.
	DataOffset uint64
}

// Lookup returns the value of a key, nil if the file does not have it.
func (f *File) Lookup(key string) any {
	for _, p := range f.Metadata {
		if p.Key == key {
			return p.Value
		}
	}
	return nil
}

// Text returns the string value of a key, "" if there is none.
func (f *File) Text(key string) string {
	s, _ := f.Lookup(key).(string)
	return s
}

// Number returns the value of a key that holds a non-negative integer of any size, and reports
// whether the file has it. For an array of integers, one for each layer, it is the largest.
func (f *File) Number(key string) (uint64, bool) {
	switch v := f.Lookup(key).(type) {
	case []uint32:
		return largest(v)
	case []int32:
		return largest(v)
	default:
		return number(v)
	}
}

func number(value any) (uint64, bool) {
	switch v := value.(type) {
	case uint8:
		return uint64(v), true
	case uint16:
		return uint64(v), true
	case uint32:
		return uint64(v), true
	case uint64:
		return v, true
	case int32:
		return uint64(max(v, 0)), v >= 0
	case int64:
		return uint64(max(v, 0)), v >= 0
	default:
		return 0, false
	}
}

func largest[T uint32 | int32](list []T) (uint64, bool) {
	var most T
	for _, v := range list {
		most = max(most, v)
	}
	return uint64(most), len(list) > 0
}

// Architecture returns the value of general.architecture, for example "llama" or "qwen3".
func (f *File) Architecture() string { return f.Text("general.architecture") }

// Of returns the number of the architecture's own key, "context_length" for example.
func (f *File) Of(key string) (uint64, bool) { return f.Number(f.Architecture() + "." + key) }

// Parameters returns the number of weights of all tensors.
func (f *File) Parameters() uint64 {
	var sum uint64
	for i := range f.Tensors {
		n, _ := f.Tensors[i].Elements()
		sum += n
	}
	return sum
}

// typeNames are the names of tensor types in ggml.
var typeNames = map[TensorType]string{
	F32: "F32", F16: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", Q8_0: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K",
	15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 30: "BF16",
	34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}

// Quantization returns the name of the type that most weights have, "" if it is unknown or there
// are no tensors.
func (f *File) Quantization() string {
	counts := map[TensorType]uint64{}
	var most TensorType
	for i := range f.Tensors {
		t := &f.Tensors[i]
		n, _ := t.Elements()
		if counts[t.Type] += n; counts[t.Type] > counts[most] {
			most = t.Type
		}
	}
	if len(f.Tensors) == 0 {
		return ""
	}
	return typeNames[most]
}

// StateBytes returns the size in bytes of the attention state (keys and values of 16 bits) of one
// token, 0 if the header does not determine it.
func (f *File) StateBytes() int64 {
	layers, _ := f.Of("block_count")
	heads, _ := f.Of("attention.head_count")
	shared, ok := f.Of("attention.head_count_kv")
	if !ok {
		shared = heads
	}
	width, _ := f.Of("embedding_length")
	key, ok := f.Of("attention.key_length")
	if !ok && heads > 0 {
		key = width / heads
	}
	value, ok := f.Of("attention.value_length")
	if !ok {
		value = key
	}
	const most = 1 << 20
	if max(layers, shared, key, value) > most {
		return 0
	}
	return int64(layers * shared * (key + value) * 2)
}
