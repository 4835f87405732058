package collective

import "fmt"

// An Element is the type of a buffer's elements.
type Element uint8

// The types. Float16 is IEEE 754 binary16; BFloat16 has the exponent of Float32.
const (
	Float64 Element = iota + 1
	Float32
	Float16
	BFloat16
	Int64
	Int32
	Int16
	Int8
	Uint8
)

var elements = [...]struct {
	name string
	size int
}{
	Float64: {"float64", 8}, Float32: {"float32", 4}, Float16: {"float16", 2}, BFloat16: {"bfloat16", 2},
	Int64: {"int64", 8}, Int32: {"int32", 4}, Int16: {"int16", 2}, Int8: {"int8", 1}, Uint8: {"uint8", 1},
}

func (e Element) valid() bool { return e >= Float64 && int(e) < len(elements) }

// Size returns the bytes of an element.
func (e Element) Size() int {
	if !e.valid() {
		return 0
	}
	return elements[e].size
}

func (e Element) String() string {
	if !e.valid() {
		return fmt.Sprintf("Element(%d)", uint8(e))
	}
	return elements[e].name
}

// A Reduction combines the elements of ranks.
type Reduction uint8

// The reductions. Average is the sum, divided by the number of ranks at the end; of integers it
// is rounded towards zero.
const (
	Sum Reduction = iota + 1
	Average
	Min
	Max
)

var reductions = [...]string{Sum: "sum", Average: "average", Min: "min", Max: "max"}

func (r Reduction) valid() bool { return r >= Sum && int(r) < len(reductions) }

func (r Reduction) String() string {
	if !r.valid() {
		return fmt.Sprintf("Reduction(%d)", uint8(r))
	}
	return reductions[r]
}
