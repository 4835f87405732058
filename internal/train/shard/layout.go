package shard

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Placement is the part of a tensor that each device along one dimension of a mesh has. Values
// from 0 on are axes of the tensor.
type Placement int8

// The placements that are no axis.
const (
	// Replicated devices have the whole tensor each.
	Replicated Placement = -1
	// Partial devices have a summand of the tensor each.
	Partial Placement = -2
)

// Split returns the placement in which each device has an equal part of the tensor along an axis.
func Split(axis int) Placement { return Placement(axis) }

// IsSplit reports whether the devices have parts along an axis.
func (p Placement) IsSplit() bool { return p >= 0 }

// Dual returns the placement of the gradient of a tensor with placement p.
func (p Placement) Dual() Placement {
	switch p {
	case Replicated:
		return Partial
	case Partial:
		return Replicated
	default:
		return p
	}
}

// String returns R, P, or S with the axis.
func (p Placement) String() string {
	switch p {
	case Replicated:
		return "R"
	case Partial:
		return "P"
	default:
		return fmt.Sprintf("S%d", int8(p))
	}
}

// A Layout has a tensor's placement along each dimension of a mesh. If several dimensions split one
// axis, the first of them divides it into the largest parts.
type Layout []Placement

// String returns the placements in brackets.
func (l Layout) String() string {
	var parts []string
	for _, p := range l {
		parts = append(parts, p.String())
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// Dual returns the layout of the gradient of a tensor with layout l.
func (l Layout) Dual() Layout {
	dual := make(Layout, len(l))
	for i, p := range l {
		dual[i] = p.Dual()
	}
	return dual
}

// innermost reports whether no dimension behind d splits the axis: only then is a device's part one
// contiguous block of the part that it has when d does not split the axis.
func (l Layout) innermost(d int, axis Placement) bool { return !slices.Contains(l[d+1:], axis) }

// Uniform returns the layout with the same placement along all of n dimensions.
func Uniform(p Placement, n int) Layout { return slices.Repeat(Layout{p}, n) }

// A Tensor is the shape of a tensor, with the size of an element in bytes.
type Tensor struct {
	Axes    []int
	Element float64
}

// Bytes returns the size of the whole tensor.
func (t Tensor) Bytes() float64 {
	n := t.Element
	for _, a := range t.Axes {
		n *= float64(a)
	}
	return n
}

// A Dimension of a mesh is a number of devices that exchange data over links of their own.
type Dimension struct {
	Size int
	// Bandwidth is the bandwidth of a device in each direction, in bytes per second; Latency the
	// latency of a message, in seconds.
	Bandwidth, Latency float64
}

// maxDimensions and maxAxes bound the layouts of a tensor, which are enumerated.
const (
	maxDimensions = 3
	maxAxes       = 5
)

// A Mesh is an arrangement of devices as a grid.
type Mesh []Dimension

func (m Mesh) check() error {
	if len(m) == 0 || len(m) > maxDimensions {
		return fmt.Errorf("mesh: %d dimensions, want 1 to %d", len(m), maxDimensions)
	}
	for i, d := range m {
		if d.Size < 1 || d.Size > 1<<20 || !(d.Bandwidth > 0) || !(d.Latency >= 0) || math.IsInf(d.Latency, 1) {
			return fmt.Errorf("mesh: dimension %d has %d devices with %v bytes/s and a latency of %v s", i, d.Size, d.Bandwidth, d.Latency)
		}
	}
	return nil
}

// fits reports whether all parts of the tensor in a layout have the same size.
func (m Mesh) fits(l Layout, t Tensor) bool {
	var parts [maxAxes]int
	for i, p := range l {
		if !p.IsSplit() {
			continue
		}
		if int(p) >= len(t.Axes) || int(p) >= maxAxes {
			return false
		}
		parts[p] = max(1, parts[p]) * m[i].Size
		if t.Axes[p]%parts[p] != 0 {
			return false
		}
	}
	return true
}

// LocalBytes returns the size of each device's part of the tensor.
func (m Mesh) LocalBytes(l Layout, t Tensor) float64 {
	n := t.Bytes()
	for i, p := range l {
		if p.IsSplit() {
			n /= float64(m[i].Size)
		}
	}
	return n
}

// layouts returns all layouts of a tensor whose parts have the same size.
func (m Mesh) layouts(t Tensor) []Layout {
	all := []Layout{{}}
	for range m {
		var longer []Layout
		for _, l := range all {
			for p := Partial; int(p) < min(len(t.Axes), maxAxes); p++ {
				if next := append(slices.Clone(l), p); m.fits(next, t) {
					longer = append(longer, next)
				}
			}
		}
		all = longer
	}
	return all
}
