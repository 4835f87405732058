package shard

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomGraph returns operators that read any earlier outputs, with sizes of small integers, which
// make ties likely.
func randomGraph(r *rand.Rand, operators int) *Graph {
	kinds := []Kind{Linear, Linear, Elementwise, Normalize, Attention, Embedding, Opaque}
	g := &Graph{
		Samples: 1 + r.IntN(4), MicroBatches: 1 + r.IntN(3), Weight: float64(r.IntN(2)) * 0.1,
		Optimizer: 1, Held: float64(r.IntN(3)), Input: []int{4, []int{3, 4, 6}[r.IntN(3)]},
	}
	read := make([]bool, operators)
	for i := range operators {
		o := Operator{
			Name: fmt.Sprint("o", i), Kind: kinds[r.IntN(len(kinds))], Output: []int{4, []int{3, 4, 6}[r.IntN(3)]}, Heads: 2, Rows: 6,
			Parameters: float64(r.IntN(300)), Stored: float64(r.IntN(40)), Forward: float64(r.IntN(20)), Backward: float64(r.IntN(40)),
		}
		from := -1
		if i > 0 {
			from = i - 1 // So that each output is read.
			read[i-1] = true
		}
		o.Inputs = []string{name(from)}
		if i > 0 && r.IntN(3) == 0 {
			o.Kind = Add
			o.Inputs = append(o.Inputs, name(r.IntN(i)-1))
		}
		if o.Kind == Add {
			o.Output = []int{4, 6}
		}
		g.Operators = append(g.Operators, o)
	}
	return g
}

func name(operator int) string {
	if operator < 0 {
		return Input
	}
	return fmt.Sprint("o", operator)
}

// bruteForce returns the least value of all combinations of options.
func (p *problem) bruteForce() float64 {
	best, chosen := math.Inf(1), make([]int, len(p.options))
	for {
		best = min(best, p.graph.value(p.evaluate(chosen)))
		at := 0
		for at < len(chosen) {
			chosen[at]++
			if chosen[at] < len(p.options[at]) {
				break
			}
			chosen[at] = 0
			at++
		}
		if at == len(chosen) {
			return best
		}
	}
}

// Thousands of random graphs over meshes of one and two dimensions: no combination of strategies is
// better than what the search finds.
func TestBestIsTheBestOfAllChoices(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 4))
		dimensions := 1
		operators := 1 + r.IntN(4)
		if seed%10 == 0 {
			dimensions, operators = 2, 1+r.IntN(2)
		}
		m := make(Mesh, dimensions)
		for i := range m {
			m[i] = Dimension{Size: 1 + r.IntN(3), Bandwidth: float64(1 + r.IntN(50)), Latency: float64(r.IntN(3))}
		}
		g := randomGraph(r, operators)
		all := m.layouts(Tensor{[]int{g.Samples, 4, 6}, 4})
		if r.IntN(2) == 0 && slices.Equal(g.Operators[operators-1].Output, []int{4, 6}) {
			g.To = all[r.IntN(len(all))]
		}
		got, err := m.Best(g)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		p, err := newProblem(m, g)
		if err != nil {
			t.Fatal(err)
		}
		if v, want := g.value(got), p.bruteForce(); math.Abs(v-want) > 1e-9*(1+want) {
			t.Fatalf("seed %d: the search finds %v (%v), there is %v", seed, v, got.Choices, want)
		}
		if twice, err := m.Best(g); err != nil || fmt.Sprint(twice.Choices) != fmt.Sprint(got.Choices) {
			t.Fatalf("seed %d: the search finds %v, then %v (%v)", seed, got.Choices, twice.Choices, err)
		}
		again, err := m.Evaluate(g, got.Choices)
		if err != nil || math.Abs(g.value(again)-g.value(got)) > 1e-9*(1+g.value(got)) {
			t.Fatalf("seed %d: the same choices are worth %v, then %v (%v)", seed, g.value(got), g.value(again), err)
		}
	}
}

// block returns the operators of a transformer's block, with times in proportion to their products.
func transformerBlock(width, heads, length int) []Operator {
	matrix := func(name string, in, out int) Operator {
		flops := float64(in) * float64(out) * float64(length) * 1e-12
		return Operator{Name: name, Kind: Linear, Output: []int{length, out}, Parameters: 4 * float64(in*out), Forward: flops, Backward: 2 * flops}
	}
	norm := func(name string) Operator {
		return Operator{Name: name, Kind: Normalize, Output: []int{length, width}, Parameters: 8 * float64(width), Forward: 1e-7, Backward: 2e-7}
	}
	add := func(name string, inputs ...string) Operator {
		return Operator{Name: name, Kind: Add, Inputs: inputs, Output: []int{length, width}, Forward: 1e-8, Backward: 1e-8}
	}
	return []Operator{
		norm("norm1"), matrix("qkv", width, 3*width),
		{Name: "attention", Kind: Attention, Heads: heads, Output: []int{length, width}, Forward: 1e-4, Backward: 2e-4},
		matrix("projection", width, width), add("add1", "projection", Input),
		norm("norm2"), matrix("up", width, 4*width),
		{Name: "gelu", Kind: Elementwise, Output: []int{length, 4 * width}, Forward: 1e-7, Backward: 1e-7},
		matrix("down", 4*width, width), add("add2", "down", "add1"),
	}
}

// With much data in flight and few samples the best plan of a transformer's block is what Megatron-LM
// does by hand: columns, heads, rows, one all-reduce behind each half and one of its gradient.
func TestTransformersAreDividedAsMegatronDoes(t *testing.T) {
	const n, width, length = 4, 1024, 512
	m := Mesh{{Size: n, Bandwidth: 1e11, Latency: 1e-6}}
	g := &Graph{Operators: transformerBlock(width, 16, length), Input: []int{length, width}, Samples: 1, MicroBatches: 1}
	p, err := m.Best(g)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"qkv": "column", "attention": "heads", "projection": "row", "up": "column", "gelu": "column", "down": "row"}
	for i, o := range g.Operators {
		if w := want[o.Name]; w != "" && p.Choices[i][0] != w {
			t.Errorf("%s: %v, want %s", o.Name, p.Choices[i], w)
		}
	}
	// Two all-reduces of the width forward and two backward, or as many bytes as reduce-scatters
	// and all-gathers.
	if most := 4 * 2 * (n - 1.0) / n * 4 * width * length; p.Sent > most*1.001 {
		t.Errorf("a device sends %v bytes, want at most %v", p.Sent, most)
	}
}

// With many samples and few parameters a group of devices is better divided by samples.
func TestManySamplesAreDividedBySamples(t *testing.T) {
	m := Mesh{{Size: 4, Bandwidth: 1e9, Latency: 1e-6}}
	g := &Graph{
		Operators: transformerBlock(64, 4, 64), Input: []int{64, 64}, Samples: 512, MicroBatches: 1,
		From: Layout{Split(0)}, To: Layout{Split(0)},
	}
	p, err := m.Best(g)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range p.Choices {
		if c[0] != "samples" {
			t.Errorf("%s: %v, want samples", g.Operators[i].Name, c)
		}
	}
	if p.Sent != 0 || p.Reduction == 0 {
		t.Errorf("%v bytes of activations are sent, gradients take %v s", p.Sent, p.Reduction)
	}
}

// A weight of memory makes plans use less of it, and take longer.
func TestAWeightOfMemorySavesIt(t *testing.T) {
	m := Mesh{{Size: 4, Bandwidth: 1e9, Latency: 1e-6}}
	g := &Graph{Operators: transformerBlock(256, 4, 64), Input: []int{64, 256}, Samples: 64, MicroBatches: 1, Optimizer: 3}
	fast, err := m.Best(g)
	if err != nil {
		t.Fatal(err)
	}
	g.Weight = 1
	small, err := m.Best(g)
	if err != nil {
		t.Fatal(err)
	}
	if small.Parameters >= fast.Parameters || small.seconds() < fast.seconds() {
		t.Errorf("with a weight: %v bytes of parameters in %v s; without: %v in %v s",
			small.Parameters, small.seconds(), fast.Parameters, fast.seconds())
	}
}

func (p Plan) seconds() float64 { return p.Forward + p.Backward + p.SentForward + p.SentBackward }

func TestGraphsThatCannotBePlannedSayWhy(t *testing.T) {
	for want, change := range map[string]func(*Graph){
		"0 operators":                      func(g *Graph) { g.Operators = nil },
		"kind: \"conv\"":                   func(g *Graph) { g.Operators[1].Kind = "conv" },
		"no operator before it is named x": func(g *Graph) { g.Operators[1].Inputs = []string{"x"} },
		"another one is named norm1":       func(g *Graph) { g.Operators[1].Name = "norm1" },
		"nothing reads its output":         func(g *Graph) { g.Operators[1].Inputs = []string{Input} },
		"an addition has more than one":    func(g *Graph) { g.Operators[4].Inputs = nil },
		"needs heads":                      func(g *Graph) { g.Operators[2].Heads = 0 },
		"output: 0 axes":                   func(g *Graph) { g.Operators[2].Output = nil },
		"an axis of 0 elements":            func(g *Graph) { g.Operators[2].Output = []int{0, 1} },
		"must be from 0":                   func(g *Graph) { g.Operators[3].Forward = math.NaN() },
		"0 samples":                        func(g *Graph) { g.Samples = 0 },
		"mesh of 1 dimensions":             func(g *Graph) { g.To = Layout{} },
	} {
		g := &Graph{Operators: transformerBlock(8, 2, 4), Samples: 1, MicroBatches: 1}
		change(g)
		if _, err := (Mesh{{Size: 2, Bandwidth: 1}}).Best(g); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// A graph all of whose outputs are needed at its end is refused, not searched for ever.
func TestWideGraphsAreRefused(t *testing.T) {
	g := &Graph{Samples: 4, MicroBatches: 1}
	last := Operator{Name: "sum", Kind: Add, Output: []int{4, 4}}
	for i := range 40 {
		o := Operator{Name: fmt.Sprint("o", i), Kind: Linear, Inputs: []string{Input}, Output: []int{4, 4}}
		g.Operators, last.Inputs = append(g.Operators, o), append(last.Inputs, o.Name)
	}
	g.Operators = append(g.Operators, last)
	if _, err := (Mesh{{Size: 2, Bandwidth: 1}}).Best(g); !errors.Is(err, ErrTooWide) {
		t.Errorf("got %v, want ErrTooWide", err)
	}
}
