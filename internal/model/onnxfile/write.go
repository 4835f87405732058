// Package onnxfile writes ONNX files for tests, examples and benchmarks, and reads the properties
// of a file that the node needs before an engine loads it.
//
// The format is protocol buffers, specified by onnx.proto of the ONNX project (IR version 8).
package onnxfile

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/outboard-run/outboard/internal/model"
)

// The versions that files are written with. Operator set 17 is the last in which the axes of
// ReduceMean are an attribute.
const (
	irVersion = 8
	opset     = 17
)

// A Graph is a network to write: its nodes in the order of execution.
type Graph struct {
	Name    string
	Nodes   []Node
	Weights []model.Tensor
	Inputs  []Value
	Outputs []Value
}

// A Node is one operator of a graph.
type Node struct {
	Op      string
	Name    string
	Inputs  []string
	Outputs []string
	// Attributes are int64, float32, []int64 or model.Tensor values.
	Attributes map[string]any
}

// A Value is an input or output of a graph.
type Value struct {
	Name string
	Type model.DataType
	// Shape has one element for each dimension: its size, or the name of a variable dimension.
	Shape []any
}

// elementTypes are the values of TensorProto.DataType.
//
//nolint:gochecknoglobals // a table
var elementTypes = map[model.DataType]uint64{
	model.FP32: 1, model.Uint8: 2, model.Int8: 3, model.Uint16: 4, model.Int16: 5, model.Int32: 6, model.Int64: 7,
	model.Bytes: 8, model.Bool: 9, model.FP16: 10, model.FP64: 11, model.Uint32: 12, model.Uint64: 13, model.BF16: 16,
}

// Encode returns the file with a graph.
func (g *Graph) Encode() []byte {
	var set, file message
	set.text(1, "")
	set.varint(2, opset)
	file.varint(1, irVersion)
	file.text(2, "outboard")
	file.bytes(7, g.encode())
	file.bytes(8, set)
	return file
}

func (g *Graph) encode() []byte {
	var m message
	for i := range g.Nodes {
		m.bytes(1, g.Nodes[i].encode())
	}
	m.text(2, g.Name)
	for i := range g.Weights {
		m.bytes(5, encodeTensor(&g.Weights[i]))
	}
	for i := range g.Inputs {
		m.bytes(11, g.Inputs[i].encode())
	}
	for i := range g.Outputs {
		m.bytes(12, g.Outputs[i].encode())
	}
	return m
}

func (n *Node) encode() []byte {
	var m message
	for _, name := range n.Inputs {
		m.text(1, name)
	}
	for _, name := range n.Outputs {
		m.text(2, name)
	}
	m.text(3, n.Name)
	m.text(4, n.Op)
	for _, name := range sortedKeys(n.Attributes) {
		m.bytes(5, encodeAttribute(name, n.Attributes[name]))
	}
	return m
}

// encodeAttribute panics for a value of a type that Node.Attributes does not allow.
func encodeAttribute(name string, value any) []byte {
	var m message
	m.text(1, name)
	switch v := value.(type) {
	case float32:
		m.tag(2, protowire.Fixed32Type)
		m = protowire.AppendFixed32(m, math.Float32bits(v))
		m.varint(20, 1)
	case int64:
		m.varint(3, uint64(v))
		m.varint(20, 2)
	case model.Tensor:
		m.bytes(5, encodeTensor(&v))
		m.varint(20, 4)
	case []int64:
		for _, i := range v {
			m.varint(8, uint64(i))
		}
		m.varint(20, 7)
	default:
		panic("onnxfile: attribute " + name + " has an unsupported type") //nolint:forbidigo // a mistake of the caller
	}
	return m
}

// encodeTensor writes the elements in their memory layout, except for strings, which have a
// separate field.
func encodeTensor(t *model.Tensor) []byte {
	var m message
	for _, d := range t.Shape {
		m.varint(1, uint64(d))
	}
	m.varint(2, elementTypes[t.Type])
	if t.Type == model.Bytes {
		for rest := t.Data; len(rest) >= 4; {
			n := binary.LittleEndian.Uint32(rest)
			m.bytes(6, rest[4:4+n])
			rest = rest[4+n:]
		}
	}
	m.text(8, t.Name)
	if t.Type != model.Bytes {
		m.bytes(9, t.Data)
	}
	return m
}

func (v *Value) encode() []byte {
	var shape message
	for _, d := range v.Shape {
		var dim message
		switch d := d.(type) {
		case int:
			dim.varint(1, uint64(d))
		case string:
			dim.text(2, d)
		default:
			panic("onnxfile: a dimension is an int or a name") //nolint:forbidigo // a mistake of the caller
		}
		shape.bytes(1, dim)
	}
	var tensor, kind, m message
	tensor.varint(1, elementTypes[v.Type])
	tensor.bytes(2, shape)
	kind.bytes(1, tensor)
	m.text(1, v.Name)
	m.bytes(2, kind)
	return m
}

// A message is an encoded protocol buffer message.
type message []byte

func (m *message) tag(field protowire.Number, kind protowire.Type) {
	*m = protowire.AppendTag(*m, field, kind)
}

func (m *message) varint(field protowire.Number, v uint64) {
	m.tag(field, protowire.VarintType)
	*m = protowire.AppendVarint(*m, v)
}

func (m *message) text(field protowire.Number, v string) { m.bytes(field, []byte(v)) }

func (m *message) bytes(field protowire.Number, v []byte) {
	m.tag(field, protowire.BytesType)
	*m = protowire.AppendBytes(*m, v)
}
