package onnxfile

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/outboard-run/outboard/internal/model"
)

// An EncoderShape is the shape of a transformer encoder for text.
type EncoderShape struct {
	Layers, Width, Heads, FeedForward, Vocabulary int
	// Sequence is the number of tokens of an input.
	Sequence int
}

// MiniLM is the shape of MiniLM-L6 for sequences of 128 tokens, with a smaller vocabulary: the size
// of the embedding table costs memory but no time.
//
//nolint:gochecknoglobals // a constant
var MiniLM = EncoderShape{Layers: 6, Width: 384, Heads: 12, FeedForward: 1536, Vocabulary: 1024, Sequence: 128}

// Encoder returns a transformer encoder from "input_ids" [batch, sequence] of INT64 to
// "last_hidden_state" [batch, sequence, width], with random weights that depend on seed alone.
func Encoder(seed uint64, s EncoderShape) *Graph {
	e := &encoder{EncoderShape: s, random: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // weights for tests
	e.graph = &Graph{
		Name:    "encoder",
		Inputs:  []Value{{"input_ids", model.Int64, []any{"batch", s.Sequence}}},
		Outputs: []Value{{"last_hidden_state", model.FP32, []any{"batch", s.Sequence, s.Width}}},
	}
	e.shape("heads.shape", 0, int64(s.Sequence), int64(s.Heads), int64(s.Width/s.Heads))
	e.shape("width.shape", 0, int64(s.Sequence), int64(s.Width))
	e.scalar("scale", float32(1/math.Sqrt(float64(s.Width/s.Heads))))
	e.scalar("half", 0.5)
	e.scalar("one", 1)
	e.scalar("root", float32(1/math.Sqrt2))
	width, vocabulary := int64(s.Width), int64(s.Vocabulary)
	e.graph.Weights = append(e.graph.Weights, random(e.random, "embeddings", 1, vocabulary, width))
	at := e.node("Gather", "embedded", nil, "embeddings", "input_ids")
	for i := range s.Layers {
		layer := fmt.Sprintf("layer%d.", i)
		at = e.normalize(layer+"attention", e.node("Add", layer+"added", nil, at, e.attention(layer, at)))
		at = e.normalize(layer+"feedforward", e.node("Add", layer+"sum", nil, at, e.feedForward(layer, at)))
	}
	e.node("Identity", "last_hidden_state", nil, at)
	return e.graph
}

// An encoder adds the operators of an Encoder to a graph. Its methods return the name of their
// result.
type encoder struct {
	EncoderShape
	graph  *Graph
	random *rand.Rand
}

func (e *encoder) node(op, output string, attributes map[string]any, inputs ...string) string {
	e.graph.Nodes = append(e.graph.Nodes, Node{Op: op, Name: output, Inputs: inputs, Outputs: []string{output}, Attributes: attributes})
	return output
}

func (e *encoder) shape(name string, values ...int64) {
	e.graph.Weights = append(e.graph.Weights, Ints(name, []int64{int64(len(values))}, values...))
}

func (e *encoder) scalar(name string, value float32) {
	e.graph.Weights = append(e.graph.Weights, Floats(name, nil, value))
}

// linear multiplies by a matrix and adds a bias.
func (e *encoder) linear(name, from string, inputs, outputs int) string {
	in, out := int64(inputs), int64(outputs)
	e.graph.Weights = append(e.graph.Weights, random(e.random, name+".weight", in, in, out), random(e.random, name+".bias", in, out))
	return e.node("Add", name, nil, e.node("MatMul", name+".product", nil, from, name+".weight"), name+".bias")
}

// heads divides a projection into heads, in the order of permutation.
func (e *encoder) heads(name, from string, permutation ...int64) string {
	divided := e.node("Reshape", name+".heads", nil, e.linear(name, from, e.Width, e.Width), "heads.shape")
	return e.node("Transpose", name+".transposed", map[string]any{"perm": permutation}, divided)
}

func (e *encoder) attention(layer, from string) string {
	query := e.heads(layer+"query", from, 0, 2, 1, 3)
	key := e.heads(layer+"key", from, 0, 2, 3, 1)
	value := e.heads(layer+"value", from, 0, 2, 1, 3)
	scores := e.node("Mul", layer+"scaled", nil, e.node("MatMul", layer+"scores", nil, query, key), "scale")
	mixed := e.node("MatMul", layer+"mixed", nil, e.node("Softmax", layer+"weights", map[string]any{"axis": int64(-1)}, scores), value)
	joined := e.node("Reshape", layer+"joined", nil, e.node("Transpose", layer+"restored", map[string]any{"perm": []int64{0, 2, 1, 3}}, mixed), "width.shape")
	return e.linear(layer+"projection", joined, e.Width, e.Width)
}

// feedForward adds two linear layers with a GELU between them.
func (e *encoder) feedForward(layer, from string) string {
	up := e.linear(layer+"up", from, e.Width, e.FeedForward)
	erf := e.node("Erf", layer+"erf", nil, e.node("Mul", layer+"root", nil, up, "root"))
	gate := e.node("Mul", layer+"gate", nil, e.node("Add", layer+"shifted", nil, erf, "one"), "half")
	return e.linear(layer+"down", e.node("Mul", layer+"gelu", nil, up, gate), e.FeedForward, e.Width)
}

func (e *encoder) normalize(name, from string) string {
	ones := make([]float32, e.Width)
	for i := range ones {
		ones[i] = 1
	}
	width := []int64{int64(e.Width)}
	e.graph.Weights = append(e.graph.Weights, Floats(name+".gain", width, ones...), Floats(name+".offset", width, make([]float32, e.Width)...))
	return e.node("LayerNormalization", name+".normalized", map[string]any{"axis": int64(-1)}, from, name+".gain", name+".offset")
}
