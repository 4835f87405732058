package shard

import (
	"errors"
	"fmt"
	"slices"
)

// A Kind is a kind of operator, which determines the operator's strategies.
type Kind string

// The kinds of operator. All tensors have the samples along axis 0 and the features along the last.
const (
	// Linear multiplies the features by a matrix of parameters, and adds a bias.
	Linear Kind = "linear"
	// Embedding looks up rows of a matrix of parameters.
	Embedding Kind = "embedding"
	// Attention is multi-head attention over axis 1; its input has for each head the features of
	// its query, key and value, one head behind the other.
	Attention Kind = "attention"
	// Elementwise computes each element of its output from the same one of its input.
	Elementwise Kind = "elementwise"
	// Normalize normalizes the features of each position, as LayerNorm.
	Normalize Kind = "normalize"
	// Add sums its inputs.
	Add Kind = "add"
	// Opaque is any other operator. It is never divided.
	Opaque Kind = "opaque"
)

// last stands for the last axis in the table of strategies.
const last Placement = 100

// A Strategy is one way to compute an operator along one dimension of a mesh.
type Strategy struct {
	Name string
	// Input is the placement that each input must have, Output that of the result.
	Input, Output Placement
	// Parameters says whether the devices have parts of the parameters.
	Parameters Placement
	// Divided says that each device does its part of the work; else each does all of it.
	Divided bool
}

// The strategies of each kind. "samples" is data parallelism, "sequence" divides axis 1, "column"
// and "row" divide a matrix of parameters by its outputs and by its inputs.
var strategies = map[Kind][]Strategy{
	Linear: {
		{"replicated", Replicated, Replicated, Replicated, false},
		{"samples", Split(0), Split(0), Replicated, true},
		{"sequence", Split(1), Split(1), Replicated, true},
		{"column", Replicated, last, Split(0), true},
		{"row", last, Partial, Split(0), true},
	},
	Embedding: {
		{"replicated", Replicated, Replicated, Replicated, false},
		{"samples", Split(0), Split(0), Replicated, true},
		{"sequence", Split(1), Split(1), Replicated, true},
		{"column", Replicated, last, Split(0), true},
		{"row", Replicated, Partial, Split(0), false},
	},
	Attention: {
		{"replicated", Replicated, Replicated, Replicated, false},
		{"samples", Split(0), Split(0), Replicated, true},
		{"heads", last, last, Replicated, true},
	},
	Elementwise: {
		{"replicated", Replicated, Replicated, Replicated, false},
		{"samples", Split(0), Split(0), Replicated, true},
		{"sequence", Split(1), Split(1), Replicated, true},
		{"column", last, last, Replicated, true},
	},
	Normalize: {
		{"replicated", Replicated, Replicated, Replicated, false},
		{"samples", Split(0), Split(0), Replicated, true},
		{"sequence", Split(1), Split(1), Replicated, true},
	},
	Add: {
		{"replicated", Replicated, Replicated, Replicated, false},
		{"samples", Split(0), Split(0), Replicated, true},
		{"sequence", Split(1), Split(1), Replicated, true},
		{"column", last, last, Replicated, true},
		{"partial", Partial, Partial, Replicated, false},
	},
	Opaque: {
		{"replicated", Replicated, Replicated, Replicated, false},
	},
}

// Input is the name by which operators read the input of their graph.
const Input = "input"

// An Operator computes one tensor from others. Times are seconds per sample, sizes bytes.
type Operator struct {
	Name string `json:"name" yaml:"name"`
	Kind Kind   `json:"kind" yaml:"kind"`
	// Inputs names the earlier operators whose outputs it reads; empty for the previous one.
	Inputs []string `json:"inputs,omitempty" yaml:"inputs,omitempty"`
	// Output is the shape of the result of one sample.
	Output []int `json:"output" yaml:"output"`
	// Heads is the number of heads of an attention, Rows that of an embedding.
	Heads int `json:"heads,omitempty" yaml:"heads,omitempty"`
	Rows  int `json:"rows,omitempty" yaml:"rows,omitempty"`
	// Parameters and Stored are defined as for a layer: Stored is per sample.
	Parameters float64 `json:"parameters,omitempty" yaml:"parameters,omitempty"`
	Stored     float64 `json:"stored,omitempty" yaml:"stored,omitempty"`
	Forward    float64 `json:"forward" yaml:"forward"`
	Backward   float64 `json:"backward" yaml:"backward"`
}

// A Graph is a part of a model whose operators are to be divided. Its result is the last
// operator's.
type Graph struct {
	Operators []Operator
	// Input is the shape of the input of one sample; nil if it is not known, so that the input
	// has no size and is split like the first operator's output, but for its last axis.
	Input []int
	// Samples is the size of axis 0, Element the bytes of an element (4 if it is 0).
	Samples int
	Element float64
	// MicroBatches is how often the operators run in a step, whose gradients are reduced once.
	MicroBatches int
	// From and To are the layouts of the graph's input and result; nil for replicated.
	From, To Layout
	// Weight is the seconds that a plan may take longer for each byte of memory that it saves.
	Weight float64
	// Optimizer is the bytes of memory for each byte of parameters beside it, Held the
	// micro-batches whose stored tensors are in memory at once.
	Optimizer, Held float64
}

// maxOperators bounds the operators of a graph.
const maxOperators = 1000

// Check returns an error if a graph of these operators can't be planned.
func Check(operators []Operator) error {
	if len(operators) == 0 || len(operators) > maxOperators {
		return fmt.Errorf("%d operators, want 1 to %d", len(operators), maxOperators)
	}
	for i, o := range operators {
		if err := o.check(); err != nil {
			return fmt.Errorf("operators[%d] (%s): %w", i, o.Name, err)
		}
	}
	_, err := wire(operators)
	return err
}

// maxNumber bounds the numbers of an operator, so that their sums and products stay finite.
const maxNumber = 1e30

func (o *Operator) check() error {
	if o.Name == "" || o.Name == Input {
		return fmt.Errorf("name: %q, want one that is not empty and not %q", o.Name, Input)
	}
	if strategies[o.Kind] == nil {
		return fmt.Errorf("kind: %q, want %q, %q, %q, %q, %q, %q or %q", o.Kind, Linear, Embedding, Attention, Elementwise, Normalize, Add, Opaque)
	}
	if len(o.Output) == 0 || len(o.Output) >= maxAxes {
		return fmt.Errorf("output: %d axes, want 1 to %d", len(o.Output), maxAxes-1)
	}
	for _, n := range o.Output {
		if n < 1 || n > 1<<40 {
			return fmt.Errorf("output: an axis of %d elements", n)
		}
	}
	for _, v := range []float64{o.Parameters, o.Stored, o.Forward, o.Backward} {
		if !(v >= 0 && v <= maxNumber) {
			return fmt.Errorf("parameters, stored, forward and backward must be from 0 to %g", maxNumber)
		}
	}
	if o.Kind == Attention && o.Heads < 1 || o.Kind == Embedding && o.Rows < 1 {
		return errors.New("an attention needs heads, an embedding rows")
	}
	if o.Kind == Attention && len(o.Output) != 2 {
		return errors.New("output: an attention has the positions along one axis and the features along another one")
	}
	return nil
}

// wire returns the indices of the operators that each operator reads, -1 for the graph's input.
func wire(operators []Operator) ([][]int, error) {
	index := map[string]int{Input: -1}
	inputs, read := make([][]int, len(operators)), make([]bool, len(operators))
	for i, o := range operators {
		if _, twice := index[o.Name]; twice {
			return nil, fmt.Errorf("operators[%d]: another one is named %s", i, o.Name)
		}
		if len(o.Inputs) == 0 {
			inputs[i] = []int{i - 1}
		}
		for _, name := range o.Inputs {
			from, ok := index[name]
			if !ok {
				return nil, fmt.Errorf("operators[%d] (%s): no operator before it is named %s", i, o.Name, name)
			}
			inputs[i] = append(inputs[i], from)
		}
		if (o.Kind == Add) != (len(inputs[i]) > 1) && o.Kind != Opaque {
			return nil, fmt.Errorf("operators[%d] (%s): %d inputs; an addition has more than one, others have one", i, o.Name, len(inputs[i]))
		}
		for _, from := range inputs[i] {
			if from >= 0 {
				read[from] = true
			}
		}
		index[o.Name] = i
	}
	if i := slices.Index(read[:len(read)-1], false); i >= 0 {
		return nil, fmt.Errorf("operators[%d] (%s): nothing reads its output", i, operators[i].Name)
	}
	return inputs, nil
}
