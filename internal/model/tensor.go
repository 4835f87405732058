package model

import (
	"fmt"
	"math"
)

// A DataType is the type of a tensor's elements, named as in the Open Inference Protocol v2
// ("Tensor Data Types").
type DataType uint8

// The data types. BF16 is missing in the protocol's table, but occurs in its messages.
const (
	Invalid DataType = iota
	Bool
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	FP16
	BF16
	FP32
	FP64
	// Bytes elements vary in size: each is a 4-byte little-endian length and that many bytes.
	Bytes
)

var dataTypes = [...]struct {
	name string
	size int
}{
	Invalid: {"", 0}, Bool: {"BOOL", 1},
	Uint8: {"UINT8", 1}, Uint16: {"UINT16", 2}, Uint32: {"UINT32", 4}, Uint64: {"UINT64", 8},
	Int8: {"INT8", 1}, Int16: {"INT16", 2}, Int32: {"INT32", 4}, Int64: {"INT64", 8},
	FP16: {"FP16", 2}, BF16: {"BF16", 2}, FP32: {"FP32", 4}, FP64: {"FP64", 8}, Bytes: {"BYTES", 0},
}

// ParseDataType returns the type that the protocol calls name. Names are case-sensitive.
func ParseDataType(name string) (DataType, error) {
	for t, d := range dataTypes {
		if d.name == name && t != int(Invalid) {
			return DataType(t), nil
		}
	}
	return Invalid, fmt.Errorf("unknown data type %q", name)
}

// String returns the protocol's name of t.
func (t DataType) String() string {
	if int(t) >= len(dataTypes) || t == Invalid {
		return fmt.Sprintf("DataType(%d)", uint8(t))
	}
	return dataTypes[t].name
}

// MarshalText returns the protocol's name of t, for JSON.
func (t DataType) MarshalText() ([]byte, error) {
	if int(t) >= len(dataTypes) || t == Invalid {
		return nil, fmt.Errorf("%v has no name", t)
	}
	return []byte(dataTypes[t].name), nil
}

// UnmarshalText sets t to the type that the protocol calls name.
func (t *DataType) UnmarshalText(name []byte) error {
	known, err := ParseDataType(string(name))
	*t = known
	return err
}

// Size returns the size of one element in bytes, 0 for Bytes, whose elements vary in size.
func (t DataType) Size() int {
	if int(t) >= len(dataTypes) {
		return 0
	}
	return dataTypes[t].size
}

// A Tensor is a named array of elements of Type with the dimensions Shape. Data holds them
// row-major, little-endian and without padding; len(Data) == Elements(Shape)*Type.Size() for all
// types but Bytes.
type Tensor struct {
	Name  string
	Type  DataType
	Shape []int64
	Data  []byte
}

// Elements returns the number of elements of a tensor with a shape, and false if a dimension is
// negative or the number does not fit an int.
func Elements(shape []int64) (int, bool) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || (d > 0 && n > math.MaxInt64/d) {
			return 0, false
		}
		n *= d
	}
	return int(n), true
}

// A Signature describes one input or output of a model. A dimension of -1 is variable.
type Signature struct {
	Name  string   `json:"name"`
	Type  DataType `json:"type"`
	Shape []int64  `json:"shape"`
}

// Fits reports whether a tensor may have a shape.
func (s *Signature) Fits(shape []int64) bool {
	if len(shape) != len(s.Shape) {
		return false
	}
	for d, size := range shape {
		if size < 0 || s.Shape[d] >= 0 && size != s.Shape[d] {
			return false
		}
	}
	return true
}
