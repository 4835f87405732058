package shard

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A block is what one device has of a tensor.
type block struct {
	axes   []int
	values []float64
}

func zeros(axes []int) block {
	n := 1
	for _, a := range axes {
		n *= a
	}
	return block{slices.Clone(axes), make([]float64, n)}
}

// strides returns the elements before, along and behind an axis.
func (b block) strides(axis int) (outer, along, inner int) {
	outer, inner = 1, 1
	for i, a := range b.axes {
		if i < axis {
			outer *= a
		} else if i > axis {
			inner *= a
		}
	}
	return outer, b.axes[axis], inner
}

// part returns part k of n along an axis.
func (b block) part(axis, k, n int) block {
	axes := slices.Clone(b.axes)
	axes[axis] /= n
	p := zeros(axes)
	outer, along, inner := p.strides(axis)
	for o := range outer {
		from := (o*along*n + k*along) * inner
		copy(p.values[o*along*inner:(o+1)*along*inner], b.values[from:from+along*inner])
	}
	return p
}

// setPart is the inverse of part.
func (b block) setPart(axis, k, n int, p block) {
	outer, along, inner := p.strides(axis)
	for o := range outer {
		to := (o*along*n + k*along) * inner
		copy(b.values[to:to+along*inner], p.values[o*along*inner:(o+1)*along*inner])
	}
}

func join(blocks []block, axis int) block {
	axes := slices.Clone(blocks[0].axes)
	axes[axis] *= len(blocks)
	whole := zeros(axes)
	for k, b := range blocks {
		whole.setPart(axis, k, len(blocks), b)
	}
	return whole
}

func sum(blocks []block) block {
	total := zeros(blocks[0].axes)
	for _, b := range blocks {
		for i, v := range b.values {
			total.values[i] += v
		}
	}
	return total
}

// coordinates returns the place of a device in the mesh.
func (m Mesh) coordinates(device int) []int {
	c := make([]int, len(m))
	for d := len(m) - 1; d >= 0; d-- {
		c[d] = device % m[d].Size
		device /= m[d].Size
	}
	return c
}

func (m Mesh) devices() int {
	n := 1
	for _, d := range m {
		n *= d.Size
	}
	return n
}

// groups returns the devices that differ along one dimension only, for each place along the others.
func (m Mesh) groups(dimension int) [][]int {
	stride := 1
	for _, d := range m[dimension+1:] {
		stride *= d.Size
	}
	var all [][]int
	for first := range m.devices() {
		if m.coordinates(first)[dimension] != 0 {
			continue
		}
		var g []int
		for k := range m[dimension].Size {
			g = append(g, first+k*stride)
		}
		all = append(all, g)
	}
	return all
}

// execute does what a step says, on the blocks of all devices.
func (m Mesh) execute(s Step, blocks []block) []block {
	result := make([]block, len(blocks))
	for _, group := range m.groups(s.Dimension) {
		n := len(group)
		var have []block
		for _, device := range group {
			have = append(have, blocks[device])
		}
		for k, device := range group {
			b := have[k]
			switch s.Collective {
			case AllGather:
				b = join(have, int(s.From))
			case ReduceScatter:
				b = sum(have).part(int(s.To), k, n)
			case AllReduce:
				b = sum(have)
			case AllToAll:
				b = join(have, int(s.From)).part(int(s.To), k, n)
			case Slice:
				b = b.part(int(s.To), k, n)
			case Mask:
				if s.From.IsSplit() {
					axes := slices.Clone(b.axes)
					axes[s.From] *= n
					whole := zeros(axes)
					whole.setPart(int(s.From), k, n, b)
					b = whole
				} else if k > 0 {
					b = zeros(b.axes)
				}
			}
			result[device] = b
		}
	}
	return result
}

func (m Mesh) executeAll(steps []Step, blocks []block) []block {
	for _, s := range steps {
		blocks = m.execute(s, blocks)
	}
	return blocks
}

// own returns a device's part of a whole tensor, as if its partial dimensions were replicated.
func (m Mesh) own(l Layout, device int, whole block) block {
	c := m.coordinates(device)
	for d, p := range l {
		if p.IsSplit() {
			whole = whole.part(int(p), c[d], m[d].Size)
		}
	}
	return whole
}

// distribute returns what the devices have of a whole tensor. Summands are random integers.
func (m Mesh) distribute(r *rand.Rand, l Layout, whole block) []block {
	blocks := make([]block, m.devices())
	for device := range blocks {
		blocks[device] = m.own(l, device, whole)
	}
	for d, p := range l {
		if p != Partial {
			continue
		}
		// The first of a group keeps what the random summands of the others leave.
		for _, group := range m.groups(d) {
			rest := block{blocks[group[0]].axes, slices.Clone(blocks[group[0]].values)}
			for _, device := range group[1:] {
				blocks[device] = zeros(rest.axes)
				for i := range rest.values {
					v := float64(r.IntN(100))
					blocks[device].values[i] = v
					rest.values[i] -= v
				}
			}
			blocks[group[0]] = rest
		}
	}
	return blocks
}

// holds reports whether the devices have a whole tensor in a layout.
func (m Mesh) holds(l Layout, blocks []block, whole block) bool {
	for d, p := range l {
		if p == Partial {
			all := l.clone()
			all[d] = Replicated
			return m.holds(all, m.execute(Step{Dimension: d, Collective: AllReduce, From: Partial, To: Replicated}, blocks), whole)
		}
	}
	for device, b := range blocks {
		want := m.own(l, device, whole)
		if !slices.Equal(b.axes, want.axes) || !slices.Equal(b.values, want.values) {
			return false
		}
	}
	return true
}

func (l Layout) clone() Layout { return slices.Clone(l) }

func randomMesh(r *rand.Rand, most int) Mesh {
	m := make(Mesh, 1+r.IntN(most))
	for i := range m {
		m[i] = Dimension{Size: 1 + r.IntN(3), Bandwidth: float64(1 + r.IntN(8)), Latency: float64(r.IntN(3))}
	}
	return m
}

func randomTensor(r *rand.Rand) Tensor {
	t := Tensor{Element: 4}
	for range 1 + r.IntN(3) {
		t.Axes = append(t.Axes, []int{1, 2, 4, 6, 12}[r.IntN(5)])
	}
	return t
}

func random(r *rand.Rand, axes []int) block {
	b := zeros(axes)
	for i := range b.values {
		b.values[i] = float64(r.IntN(1000))
	}
	return b
}

// Each conversion, executed by simulated devices, gives the target layout of the same tensor.
func TestConversionsKeepTheTensor(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		m, tensor := randomMesh(r, 3), randomTensor(r)
		all := m.layouts(tensor)
		from, to := all[r.IntN(len(all))], all[r.IntN(len(all))]
		c, err := m.Convert(tensor, from, to)
		if err != nil {
			t.Fatal(err)
		}
		whole := random(r, tensor.Axes)
		if got := m.executeAll(c.Forward, m.distribute(r, from, whole)); !m.holds(to, got, whole) {
			t.Fatalf("seed %d: %v from %v to %v over %v by %+v is another tensor", seed, tensor.Axes, from, to, m, c.Forward)
		}
		if got := m.executeAll(c.Backward, m.distribute(r, to.Dual(), whole)); !m.holds(from.Dual(), got, whole) {
			t.Fatalf("seed %d: the gradient from %v to %v by %+v is another one", seed, to.Dual(), from.Dual(), c.Backward)
		}
	}
}

// The backward pass of a conversion is the adjoint of the forward pass, for whatever the devices
// have: so automatic differentiation on each device gives the gradient of the sum of the losses.
func TestBackwardPassesAreAdjoint(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 2))
		m, tensor := randomMesh(r, 3), randomTensor(r)
		all := m.layouts(tensor)
		from, to := all[r.IntN(len(all))], all[r.IntN(len(all))]
		c, err := m.Convert(tensor, from, to)
		if err != nil {
			t.Fatal(err)
		}
		fill := func(l Layout) (blocks []block) {
			for device := range m.devices() {
				blocks = append(blocks, random(r, m.own(l, device, zeros(tensor.Axes)).axes))
			}
			return blocks
		}
		x, g := fill(from), fill(to)
		if a, b := dot(m.executeAll(c.Forward, x), g), dot(x, m.executeAll(c.Backward, g)); a != b {
			t.Fatalf("seed %d: from %v to %v: <Ax, g> = %v, <x, A'g> = %v", seed, from, to, a, b)
		}
	}
}

func dot(x, y []block) (total float64) {
	for i := range x {
		for k, v := range x[i].values {
			total += v * y[i].values[k]
		}
	}
	return total
}

// No sequence of steps takes less time than Dijkstra's: relaxed until nothing changes.
func TestConversionsAreShortestPaths(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		m, tensor := randomMesh(r, 2), randomTensor(r)
		all := m.layouts(tensor)
		from := all[r.IntN(len(all))]
		least := make([]float64, len(all))
		for i := range least {
			least[i] = math.Inf(1)
		}
		least[slices.IndexFunc(all, func(l Layout) bool { return slices.Equal(l, from) })] = 0
		for changed := true; changed; {
			changed = false
			for i, a := range all {
				for k, b := range all {
					if v := least[i] + m.oneStep(tensor, a, b); v < least[k] {
						least[k], changed = v, true
					}
				}
			}
		}
		for k, to := range all {
			c, err := m.Convert(tensor, from, to)
			if got := c.ForwardSeconds() + c.BackwardSeconds(); err != nil || math.Abs(got-least[k]) > 1e-9*(1+got) {
				t.Fatalf("seed %d: from %v to %v takes %v (%v), another way %v", seed, from, to, got, err, least[k])
			}
		}
	}
}

// oneStep is the time of the conversion between layouts that differ along one dimension, forward and
// backward; +Inf for others.
func (m Mesh) oneStep(t Tensor, from, to Layout) float64 {
	differs := -1
	for d := range m {
		if from[d] != to[d] {
			if differs >= 0 {
				return math.Inf(1)
			}
			differs = d
		}
	}
	if differs < 0 || !from.allowed(differs, to[differs]) {
		return math.Inf(1)
	}
	s := m.step(t, from, differs, from[differs], to[differs])
	return s.Seconds + m.dual(t, to, s).Seconds
}

// The formulas of the collectives, for s bytes a device and n devices.
func TestStepsSendWhatTheFormulasSay(t *testing.T) {
	const n, s = 4, 4 * 8 * 12
	m, tensor := Mesh{{Size: n, Bandwidth: 2}}, Tensor{[]int{8, 12}, 4}
	for _, c := range []struct {
		from, to Placement
		want     Collective
		bytes    float64
	}{
		{Split(0), Replicated, AllGather, (n - 1) * s / n},
		{Partial, Split(1), ReduceScatter, (n - 1) * s / n},
		{Partial, Replicated, AllReduce, 2 * (n - 1) * s / n},
		{Split(0), Split(1), AllToAll, (n - 1) * s / n / n},
		{Replicated, Split(0), Slice, 0},
		{Replicated, Partial, Mask, 0},
		{Split(1), Partial, Mask, 0},
	} {
		got := m.step(tensor, Layout{c.from}, 0, c.from, c.to)
		if got.Collective != c.want || got.Bytes != c.bytes || got.Seconds != c.bytes/2 {
			t.Errorf("%v to %v: %+v, want %s of %v bytes", c.from, c.to, got, c.want, c.bytes)
		}
	}
}
