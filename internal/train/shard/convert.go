package shard

import (
	"fmt"
	"math"
	"slices"
)

// A Collective is the operation by which the devices along one dimension of a mesh convert a
// placement.
type Collective string

// The collectives, with the bytes that each of n devices sends for a tensor of which a device has s
// bytes before it is split.
const (
	// AllGather makes parts a whole: (1-1/n)s.
	AllGather Collective = "all-gather"
	// ReduceScatter makes summands parts of their sum: (1-1/n)s.
	ReduceScatter Collective = "reduce-scatter"
	// AllReduce makes summands their sum: 2(1-1/n)s.
	AllReduce Collective = "all-reduce"
	// AllToAll makes parts along an axis parts along another one: (1-1/n)s/n.
	AllToAll Collective = "all-to-all"
	// Slice keeps a part of a whole, without communication.
	Slice Collective = "slice"
	// Mask makes a whole, or a part, a summand: the other devices' are zero. No communication.
	Mask Collective = "mask"
)

// collective returns the collective that converts one placement to another.
func collective(from, to Placement) Collective {
	switch {
	case to == Partial:
		return Mask
	case from == Partial && to == Replicated:
		return AllReduce
	case from == Partial:
		return ReduceScatter
	case from == Replicated:
		return Slice
	case to == Replicated:
		return AllGather
	default:
		return AllToAll
	}
}

// A Step of a conversion changes the placement along one dimension of the mesh.
type Step struct {
	Dimension  int
	Collective Collective
	From, To   Placement
	// Bytes is the number of bytes that each device sends, Seconds the time of that.
	Bytes, Seconds float64
}

// step returns the conversion of one dimension's placement of a tensor whose other placements are
// those of l.
func (m Mesh) step(t Tensor, l Layout, dimension int, from, to Placement) Step {
	rest := slices.Clone(l)
	rest[dimension] = Replicated
	d, s := m[dimension], m.LocalBytes(rest, t)
	n := float64(d.Size)
	c := Step{Dimension: dimension, Collective: collective(from, to), From: from, To: to}
	rounds := n - 1
	switch c.Collective {
	case AllGather, ReduceScatter:
		c.Bytes = (n - 1) / n * s
	case AllReduce:
		c.Bytes, rounds = 2*(n-1)/n*s, 2*(n-1)
	case AllToAll:
		c.Bytes = (n - 1) / n * s / n
	default:
		rounds = 0
	}
	c.Seconds = c.Bytes/d.Bandwidth + rounds*d.Latency
	return c
}

// dual returns the backward pass of a step: the conversion of the gradient.
func (m Mesh) dual(t Tensor, l Layout, s Step) Step {
	return m.step(t, l.Dual(), s.Dimension, s.To.Dual(), s.From.Dual())
}

// allowed reports whether one step changes a placement of l to another: all parts before and after
// it must be contiguous blocks.
func (l Layout) allowed(dimension int, to Placement) bool {
	from := l[dimension]
	return from != to && (!from.IsSplit() || l.innermost(dimension, from)) && (!to.IsSplit() || l.innermost(dimension, to))
}

// A Conversion changes the layout of a tensor forward, and that of its gradient backward.
type Conversion struct {
	Forward, Backward []Step
}

// ForwardSeconds returns the time of the conversion of the tensor.
func (c Conversion) ForwardSeconds() float64 { return seconds(c.Forward) }

// BackwardSeconds returns the time of the conversion of the gradient.
func (c Conversion) BackwardSeconds() float64 { return seconds(c.Backward) }

func seconds(steps []Step) (sum float64) {
	for _, s := range steps {
		sum += s.Seconds
	}
	return sum
}

// Convert returns the steps that take the least time, forward and backward together, to change the
// layout of a tensor: the shortest path over its layouts (Dijkstra). Of paths that take the same
// time it is the one with fewer steps.
func (m Mesh) Convert(t Tensor, from, to Layout) (Conversion, error) {
	if err := m.check(); err != nil {
		return Conversion{}, err
	}
	for _, l := range []Layout{from, to} {
		if len(l) != len(m) || !m.fits(l, t) {
			return Conversion{}, fmt.Errorf("a tensor of %v elements has no layout %v over a mesh of %d dimensions", t.Axes, l, len(m))
		}
	}
	return m.shortest(t, from, to), nil
}

// A layoutPath is the shortest known path to a layout.
type layoutPath struct {
	seconds float64
	steps   int
	before  int // the index of the layout before the last step, -1 for none
	last    Step
	done    bool
}

func (p *layoutPath) longer(seconds float64, steps int) bool {
	return seconds < p.seconds || seconds == p.seconds && steps < p.steps
}

func (m Mesh) shortest(t Tensor, from, to Layout) Conversion {
	all := m.layouts(t)
	index := make(map[string]int, len(all))
	paths := make([]layoutPath, len(all))
	for i, l := range all {
		index[l.String()] = i
		paths[i] = layoutPath{seconds: math.Inf(1), before: -1}
	}
	end := index[to.String()]
	paths[index[from.String()]].seconds = 0
	for {
		at := nearest(paths)
		if at == end || at < 0 {
			break
		}
		paths[at].done = true
		m.relax(t, all, index, paths, at)
	}
	var c Conversion
	for at := end; paths[at].before >= 0; at = paths[at].before {
		s := paths[at].last
		c.Forward = append(c.Forward, s)
		c.Backward = append(c.Backward, m.dual(t, all[at], s))
	}
	slices.Reverse(c.Forward)
	return c
}

// nearest returns the index of the path that is shortest of those that are not done, -1 if there is
// none.
func nearest(paths []layoutPath) int {
	at := -1
	for i := range paths {
		p := &paths[i]
		if !p.done && !math.IsInf(p.seconds, 1) && (at < 0 || paths[at].longer(p.seconds, p.steps)) {
			at = i
		}
	}
	return at
}

// relax shortens the paths to the layouts that are one step from that at an index.
func (m Mesh) relax(t Tensor, all []Layout, index map[string]int, paths []layoutPath, at int) {
	l := all[at]
	for d := range m {
		for to := Partial; int(to) < min(len(t.Axes), maxAxes); to++ {
			next := slices.Clone(l)
			next[d] = to
			i, ok := index[next.String()]
			if !ok || !l.allowed(d, to) {
				continue
			}
			s := m.step(t, l, d, l[d], to)
			total, steps := paths[at].seconds+s.Seconds+m.dual(t, next, s).Seconds, paths[at].steps+1
			if paths[i].longer(total, steps) {
				paths[i] = layoutPath{seconds: total, steps: steps, before: at, last: s, done: paths[i].done}
			}
		}
	}
}
