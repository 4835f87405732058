package onnxfile

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/outboard-run/outboard/internal/model"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Floats returns a tensor of FP32 elements.
func Floats(name string, shape []int64, values ...float32) model.Tensor {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return model.Tensor{Name: name, Type: model.FP32, Shape: shape, Data: data}
}

// Ints returns a tensor of Int64 elements.
func Ints(name string, shape []int64, values ...int64) model.Tensor {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return model.Tensor{Name: name, Type: model.Int64, Shape: shape, Data: data}
}

// random returns FP32 weights of a normal distribution with a standard deviation of
// 1/sqrt(inputs).
func random(r *rand.Rand, name string, inputs int64, shape ...int64) model.Tensor {
	n, _ := model.Elements(shape)
	values := make([]float32, n)
	scale := 1 / math.Sqrt(float64(inputs))
	for i := range values {
		values[i] = float32(r.NormFloat64() * scale)
	}
	return Floats(name, shape, values...)
}

// Unary returns a graph with one operator from the input "x" to the output "y", both of the
// given type and shape.
func Unary(op string, kind model.DataType, shape ...any) *Graph {
	return &Graph{
		Name:    op,
		Nodes:   []Node{{Op: op, Name: op, Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Inputs:  []Value{{"x", kind, shape}},
		Outputs: []Value{{"y", kind, shape}},
	}
}

// MLP returns a multi-layer perceptron with ReLU between its layers, from "input" [batch,
// sizes[0]] to "output" [batch, sizes[last]], with random weights that depend on seed alone.
func MLP(seed uint64, sizes ...int64) *Graph {
	weights := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // weights for tests
	g := &Graph{
		Name:    "mlp",
		Inputs:  []Value{{"input", model.FP32, []any{"batch", int(sizes[0])}}},
		Outputs: []Value{{"output", model.FP32, []any{"batch", int(sizes[len(sizes)-1])}}},
	}
	from := "input"
	for i := range len(sizes) - 1 {
		layer := fmt.Sprintf("layer%d", i)
		g.Weights = append(g.Weights,
			random(weights, layer+".weight", sizes[i], sizes[i], sizes[i+1]), random(weights, layer+".bias", sizes[i], sizes[i+1]))
		to := layer + ".sum"
		if i == len(sizes)-2 {
			to = "output"
		}
		g.Nodes = append(g.Nodes, Node{
			Op: "Gemm", Name: layer, Inputs: []string{from, layer + ".weight", layer + ".bias"}, Outputs: []string{to},
		})
		if from = layer + ".out"; to != "output" {
			g.Nodes = append(g.Nodes, Node{Op: "Relu", Name: layer + ".relu", Inputs: []string{to}, Outputs: []string{from}})
		}
	}
	return g
}

// Slow returns a graph that multiplies a matrix of size x size, "x", by itself count times, which
// takes long and can be interrupted between the multiplications. Its output is "y".
func Slow(size, count int) *Graph {
	g := &Graph{
		Name:    "slow",
		Inputs:  []Value{{"x", model.FP32, []any{size, size}}},
		Outputs: []Value{{"y", model.FP32, []any{size, size}}},
	}
	from := "x"
	for i := range count {
		to := fmt.Sprintf("product%d", i)
		if i == count-1 {
			to = "y"
		}
		g.Nodes = append(g.Nodes, Node{Op: "MatMul", Name: "matmul" + fmt.Sprint(i), Inputs: []string{from, "x"}, Outputs: []string{to}})
		from = to
	}
	return g
}
