package main

import (
	"math"
	"math/rand/v2"

	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
)

// A layer multiplies its inputs with weights, inputs x outputs, and adds a bias.
type layer struct {
	inputs, outputs int
	weights, bias   []float32
}

func newLayer(inputs, outputs int, r *rand.Rand) *layer {
	l := &layer{inputs, outputs, make([]float32, inputs*outputs), make([]float32, outputs)}
	for i := range l.weights {
		l.weights[i] = float32(r.NormFloat64() * math.Sqrt(2/float64(inputs)))
	}
	return l
}

func (l *layer) forward(in, out []float32) {
	copy(out, l.bias)
	for i, v := range in {
		if v == 0 {
			continue
		}
		for o, w := range l.weights[i*l.outputs : (i+1)*l.outputs] {
			out[o] += v * w
		}
	}
}

// backward takes a step against the gradient of the outputs. It adds the gradient of the inputs to
// before, unless that is nil.
func (l *layer) backward(in, gradient, before []float32, rate float32) {
	for i, v := range in {
		row := l.weights[i*l.outputs : (i+1)*l.outputs]
		if before != nil {
			var sum float32
			for o, w := range row {
				sum += w * gradient[o]
			}
			before[i] = sum
		}
		if v == 0 {
			continue
		}
		for o := range row {
			row[o] -= rate * v * gradient[o]
		}
	}
	for o := range l.bias {
		l.bias[o] -= rate * gradient[o]
	}
}

// A network has one hidden layer with ReLU, and a softmax.
type network struct{ first, second *layer }

const hidden = 64

func newNetwork(pixels int, r *rand.Rand) *network {
	return &network{newLayer(pixels, hidden, r), newLayer(hidden, 10, r)}
}

// infer returns the probabilities of the digits, and the hidden layer.
func (n *network) infer(in []float32) (probabilities, inside []float32) {
	inside, out := make([]float32, hidden), make([]float32, 10)
	n.first.forward(in, inside)
	for i, v := range inside {
		inside[i] = max(v, 0)
	}
	n.second.forward(inside, out)
	most, sum := out[0], float32(0)
	for _, v := range out {
		most = max(most, v)
	}
	for i, v := range out {
		out[i] = float32(math.Exp(float64(v - most)))
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out, inside
}

// learn takes a step of gradient descent for a picture of a digit.
func (n *network) learn(in []float32, digit int, rate float32) {
	gradient, inside := n.infer(in)
	gradient[digit]-- // of the cross-entropy
	before := make([]float32, hidden)
	n.second.backward(inside, gradient, before, rate)
	for i, v := range inside {
		if v == 0 {
			before[i] = 0
		}
	}
	n.first.backward(in, before, nil, rate)
}

// guess returns the most probable digit.
func (n *network) guess(in []float32) int {
	probabilities, _ := n.infer(in)
	best := 0
	for i, p := range probabilities {
		if p > probabilities[best] {
			best = i
		}
	}
	return best
}

// graph returns the network as ONNX: from "picture" [batch, pixels] to "probabilities" [batch, 10].
func (n *network) graph() *onnxfile.Graph {
	g := &onnxfile.Graph{
		Name:    "digits",
		Inputs:  []onnxfile.Value{{Name: "picture", Type: model.FP32, Shape: []any{"batch", n.first.inputs}}},
		Outputs: []onnxfile.Value{{Name: "probabilities", Type: model.FP32, Shape: []any{"batch", 10}}},
		Nodes: []onnxfile.Node{
			{Op: "Gemm", Name: "first", Inputs: []string{"picture", "first.weight", "first.bias"}, Outputs: []string{"sum"}},
			{Op: "Relu", Name: "relu", Inputs: []string{"sum"}, Outputs: []string{"hidden"}},
			{Op: "Gemm", Name: "second", Inputs: []string{"hidden", "second.weight", "second.bias"}, Outputs: []string{"scores"}},
			{Op: "Softmax", Name: "softmax", Inputs: []string{"scores"}, Outputs: []string{"probabilities"}, Attributes: map[string]any{"axis": int64(-1)}},
		},
	}
	g.Weights = append(n.first.tensors("first"), n.second.tensors("second")...)
	return g
}

// tensors returns the weights and the bias of a layer as tensors of ONNX.
func (l *layer) tensors(name string) []model.Tensor {
	return []model.Tensor{
		onnxfile.Floats(name+".weight", []int64{int64(l.inputs), int64(l.outputs)}, l.weights...),
		onnxfile.Floats(name+".bias", []int64{int64(l.outputs)}, l.bias...),
	}
}
