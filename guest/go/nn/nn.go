// Package nn computes with the models of the pool, through wasi-nn.
//
// The app's manifest names the models that a function may use:
//
//	functions:
//	  recognize:
//	    module: recognize.wasm
//	    imports: [{model: digits}]
package nn

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Type is the data type of a tensor's elements ($tensor_type of wasi-nn).
type Type uint8

// The types of wasi-nn.
const (
	Float16 Type = iota
	Float32
	Float64
	Uint8
	Int32
	Int64
)

// A Tensor is an array of Dimensions elements of Type, row-major and little-endian.
type Tensor struct {
	Dimensions []uint32
	Type       Type
	Data       []byte
}

// Floats returns a tensor of Float32 elements.
func Floats(values []float32, dimensions ...uint32) Tensor {
	t := Tensor{Dimensions: dimensions, Type: Float32, Data: make([]byte, 0, 4*len(values))}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

// ParseFloats returns the elements of an output of Float32.
func ParseFloats(data []byte) []float32 {
	values := make([]float32, len(data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values
}

// A Code is the cause of a failed call ($nn_errno of wasi-nn).
type Code uint16

// The codes of wasi-nn.
const (
	InvalidArgument Code = iota + 1
	InvalidEncoding
	MissingMemory
	Busy
	RuntimeError
	UnsupportedOperation
	TooLarge
	NotFound
)

// An Error is the error of a failed call.
type Error struct {
	Op   string
	Code Code
	Text string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("nn: %s: %s", e.Op, e.Text) }

// A Model is a model of the pool, loaded for this call of the function.
type Model struct {
	name    string
	graph   uint32
	context uint32 // of Infer; 0: none yet
	buffer  []byte // of Infer, for an output of any size up to its length
}

// Load returns a model by its name or alias. The error names the line missing in the manifest.
func Load(name string) (*Model, error) {
	graph, err := loadByName(name)
	if err != nil {
		return nil, err
	}
	return &Model{name: name, graph: graph}, nil
}

// Name returns the name by which the model was loaded.
func (m *Model) Name() string { return m.name }

// Infer computes the model's first output from its inputs, in the model's order. size bounds the
// output in bytes; the model keeps a buffer of the largest size, so that a call allocates no more
// than its output has.
func (m *Model) Infer(size int, inputs ...Tensor) ([]byte, error) {
	if m.context == 0 {
		var err error
		if m.context, err = initContext(m.graph); err != nil {
			return nil, err
		}
	}
	c := Context{m.context}
	for i, t := range inputs {
		if err := c.SetInput(i, t); err != nil {
			return nil, err
		}
	}
	if err := c.Compute(); err != nil {
		return nil, err
	}
	if len(m.buffer) < size {
		m.buffer = make([]byte, size)
	}
	n, err := c.Output(0, m.buffer[:size])
	return append([]byte{}, m.buffer[:n]...), err
}

// Context returns a new execution context, for models with several outputs and for inputs that are
// used again.
func (m *Model) Context() (*Context, error) {
	number, err := initContext(m.graph)
	if err != nil {
		return nil, err
	}
	return &Context{number}, nil
}

// A Context holds the inputs that were set, and the outputs of the last computation.
type Context struct{ number uint32 }

// SetInput sets the input with an index, in the model's order. The data are copied.
func (c *Context) SetInput(index int, t Tensor) error {
	return setInput(c.number, uint32(index), &t)
}

// Compute computes all outputs. It fails if the function's deadline passes.
func (c *Context) Compute() error { return compute(c.number) }

// Output copies the output with an index to a buffer, and returns its number of bytes.
func (c *Context) Output(index int, buffer []byte) (int, error) {
	return getOutput(c.number, uint32(index), buffer)
}
