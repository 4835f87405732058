package shard

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// A Choice is a strategy along each dimension of the mesh, by name.
type Choice []string

// A Plan is a choice for each operator, with its times and sizes. Times are seconds; sizes are
// bytes of one device.
type Plan struct {
	Choices []Choice
	// Forward and Backward are the times in which one micro-batch is computed, SentForward and
	// SentBackward the times of its conversions.
	Forward, Backward, SentForward, SentBackward float64
	// Reduction is the time to sum the gradients of parameters, once a step. It has no latency:
	// one reduction sums those of all operators.
	Reduction float64
	// Parameters and Stored are sizes, Stored for one micro-batch. Sent is the number of bytes that
	// a device sends for one micro-batch, in both passes.
	Parameters, Stored, Sent float64
}

// value returns the quantity that Best minimises.
func (g *Graph) value(p Plan) float64 {
	return float64(g.MicroBatches)*(p.Forward+p.Backward+p.SentForward+p.SentBackward) + p.Reduction + g.Weight*(p.Parameters*(1+g.Optimizer)+p.Stored*g.Held)
}

func (p *Plan) add(q Plan) {
	p.Forward += q.Forward
	p.Backward += q.Backward
	p.SentForward += q.SentForward
	p.SentBackward += q.SentBackward
	p.Reduction += q.Reduction
	p.Parameters += q.Parameters
	p.Stored += q.Stored
	p.Sent += q.Sent
}

// An option is one combination of strategies of an operator.
type option struct {
	names         Choice
	input, output Layout
	takes         Plan // of the operator alone
}

// A problem is a graph with the options of its operators.
type problem struct {
	mesh    Mesh
	graph   *Graph
	inputs  [][]int
	tensors []Tensor // the results of the operators
	input   Tensor
	options [][]option
	// conversions has the conversions computed so far.
	conversions map[conversionKey]Plan
}

// A conversionKey names the conversion of the result of an operator.
type conversionKey struct {
	operator int
	from, to [maxDimensions]Placement
}

func newProblem(m Mesh, g *Graph) (*problem, error) {
	if err := errors.Join(m.check(), Check(g.Operators)); err != nil {
		return nil, err
	}
	inputs, err := wire(g.Operators)
	if err != nil {
		return nil, err
	}
	p := &problem{mesh: m, graph: g, inputs: inputs, conversions: make(map[conversionKey]Plan)}
	element := g.Element
	if element == 0 {
		element = 4
	}
	for _, o := range g.Operators {
		p.tensors = append(p.tensors, Tensor{append([]int{g.Samples}, o.Output...), element})
	}
	p.input = Tensor{append([]int{g.Samples}, g.Input...), element}
	if g.Input == nil {
		first := g.Operators[0].Output
		p.input = Tensor{append([]int{g.Samples}, first[:len(first)-1]...), 0}
	}
	for i := range g.Operators {
		p.options = append(p.options, p.optionsOf(i))
	}
	for _, l := range []Layout{g.from(m), g.to(m)} {
		if len(l) != len(m) {
			return nil, fmt.Errorf("layout %v over a mesh of %d dimensions", l, len(m))
		}
	}
	return p, nil
}

func (g *Graph) from(m Mesh) Layout {
	if g.From == nil {
		return Uniform(Replicated, len(m))
	}
	return g.From
}

func (g *Graph) to(m Mesh) Layout {
	if g.To == nil {
		return Uniform(Replicated, len(m))
	}
	return g.To
}

// tensor returns the tensor that an operator reads.
func (p *problem) tensor(from int) Tensor {
	if from < 0 {
		return p.input
	}
	return p.tensors[from]
}

// optionsOf returns the combinations of strategies of an operator whose parts have the same size.
func (p *problem) optionsOf(i int) []option {
	combinations := [][]Strategy{{}}
	for range p.mesh {
		var longer [][]Strategy
		for _, c := range combinations {
			for _, s := range strategies[p.graph.Operators[i].Kind] {
				longer = append(longer, append(slices.Clone(c), s))
			}
		}
		combinations = longer
	}
	var list []option
	for _, c := range combinations {
		if o, ok := p.option(i, c); ok {
			list = append(list, o)
		}
	}
	return list
}

// option returns a combination of strategies of an operator, and false if parts would differ in
// size.
func (p *problem) option(i int, combination []Strategy) (option, bool) {
	var o option
	read := p.tensor(p.inputs[i][0])
	for _, s := range combination {
		o.names = append(o.names, s.Name)
		o.input = append(o.input, resolve(s.Input, read))
		o.output = append(o.output, resolve(s.Output, p.tensors[i]))
	}
	for _, from := range p.inputs[i] {
		if !p.mesh.fits(o.input, p.tensor(from)) {
			return o, false
		}
	}
	if !p.mesh.fits(o.output, p.tensors[i]) || !p.mesh.divides(&p.graph.Operators[i], combination) || p.featuresUnknown(i, combination) {
		return o, false
	}
	o.takes = p.alone(i, combination)
	return o, true
}

// resolve replaces the last axis of a tensor by its number.
func resolve(s Placement, t Tensor) Placement {
	if s == last {
		return Split(len(t.Axes) - 1)
	}
	return s
}

// featuresUnknown reports whether a strategy may split the wrong axis: axis 1 of a tensor of two
// axes has the features, and the features of an unknown input are not among its axes.
func (p *problem) featuresUnknown(i int, combination []Strategy) bool {
	for _, s := range combination {
		if s.Name == "sequence" && len(p.tensors[i].Axes) < 3 {
			return true
		}
		if s.Input == last && p.graph.Input == nil && slices.Contains(p.inputs[i], -1) {
			return true
		}
	}
	return false
}

// divides reports whether the heads, or rows, of an operator are divided into equal parts.
func (m Mesh) divides(o *Operator, combination []Strategy) bool {
	heads, rows := 1, 1
	for i, s := range combination {
		switch {
		case s.Name == "heads":
			heads *= m[i].Size
		case s.Name == "row" && o.Kind == Embedding:
			rows *= m[i].Size
		}
	}
	return (heads == 1 || o.Heads%heads == 0) && (rows == 1 || o.Rows%rows == 0)
}

// alone returns the times and sizes of an operator without the conversion of its inputs.
func (p *problem) alone(i int, combination []Strategy) Plan {
	o, work, part, stored := p.graph.Operators[i], 1.0, 1.0, 1.0
	for d, s := range combination {
		if s.Divided {
			work /= float64(p.mesh[d].Size)
		}
		if s.Parameters.IsSplit() {
			part /= float64(p.mesh[d].Size)
		}
		if s.Input.IsSplit() { // The stored tensors are mostly the input.
			stored /= float64(p.mesh[d].Size)
		}
	}
	samples := float64(p.graph.Samples)
	takes := Plan{
		Forward: o.Forward * samples * work, Backward: o.Backward * samples * work,
		Parameters: o.Parameters * part, Stored: o.Stored * samples * stored,
	}
	for d, s := range combination {
		if !s.Parameters.IsSplit() {
			n := float64(p.mesh[d].Size)
			takes.Reduction += 2 * (n - 1) / n * takes.Parameters / p.mesh[d].Bandwidth
		}
	}
	return takes
}

// convert returns the cost of converting the tensor that an operator reads.
func (p *problem) convert(read int, from, to Layout) Plan {
	key := conversionKey{operator: read}
	copy(key.from[:], from)
	copy(key.to[:], to)
	c, ok := p.conversions[key]
	if !ok {
		conversion := p.mesh.shortest(p.tensor(read), from, to)
		c = Plan{SentForward: conversion.ForwardSeconds(), SentBackward: conversion.BackwardSeconds()}
		for _, s := range slices.Concat(conversion.Forward, conversion.Backward) {
			c.Sent += s.Bytes
		}
		p.conversions[key] = c
	}
	return c
}

// layout returns the layout of an operator's output with an option, or of the graph's input.
func (p *problem) layout(operator, option int) Layout {
	if operator < 0 {
		return p.graph.from(p.mesh)
	}
	return p.options[operator][option].output
}

// evaluate returns the plan of a graph with these options of its operators.
func (p *problem) evaluate(chosen []int) Plan {
	var sum Plan
	for i, c := range chosen {
		o := p.options[i][c]
		sum.Choices = append(sum.Choices, o.names)
		sum.add(o.takes)
		for _, from := range p.inputs[i] {
			before := 0
			if from >= 0 {
				before = chosen[from]
			}
			sum.add(p.convert(from, p.layout(from, before), o.input))
		}
	}
	end := len(chosen) - 1
	sum.add(p.convert(end, p.layout(end, chosen[end]), p.graph.to(p.mesh)))
	return sum
}

// Evaluate returns the plan of a graph with a choice for each operator.
func (m Mesh) Evaluate(g *Graph, choices []Choice) (Plan, error) {
	if err := g.check(m); err != nil {
		return Plan{}, err
	}
	p, err := newProblem(m, g)
	if err != nil {
		return Plan{}, err
	}
	if len(choices) != len(g.Operators) {
		return Plan{}, fmt.Errorf("%d choices for %d operators", len(choices), len(g.Operators))
	}
	chosen := make([]int, len(choices))
	for i, c := range choices {
		at := slices.IndexFunc(p.options[i], func(o option) bool { return slices.Equal(o.names, c) })
		if at < 0 {
			return Plan{}, fmt.Errorf("operators[%d] (%s): no strategy %v", i, g.Operators[i].Name, c)
		}
		chosen[i] = at
	}
	return p.evaluate(chosen), nil
}

func (g *Graph) check(m Mesh) error {
	if g.Samples < 1 || g.MicroBatches < 1 {
		return fmt.Errorf("%d samples, %d micro-batches: want 1 or more", g.Samples, g.MicroBatches)
	}
	for _, v := range []float64{g.Element, g.Weight, g.Optimizer, g.Held} {
		if !(v >= 0) || math.IsInf(v, 1) {
			return errors.New("the sizes and weights of a graph must be 0 or more")
		}
	}
	for _, l := range []Layout{g.From, g.To} {
		if l != nil && len(l) != len(m) {
			return fmt.Errorf("layout %v over a mesh of %d dimensions", l, len(m))
		}
	}
	return nil
}
