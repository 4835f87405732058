// Package tiers plans in which memory the tensors that a training step saves for its backward pass
// lie until they are used: the device's, the host's or a disk's.
//
// It is pure: a [Trace] of a measured step goes in, a [Plan] comes out, and [Simulate] computes how
// long the step takes with any plan. python/outboard/offload.py measures and executes.
package tiers

import (
	"fmt"
	"math"
	"strings"
)

// A Tier is a kind of memory, from the fastest to the slowest one.
type Tier byte

// The tiers.
const (
	Device Tier = iota
	Host
	Disk
	tiers // their number
)

func (t Tier) String() string { return [...]string{"device", "host", "disk"}[t] }

// Limits of a trace: of its tensors, and of all its sizes together in bytes.
const (
	MaxTensors = 8192
	maxBytes   = 1 << 50
)

// A Trace is one measured step, or the part between two moments at which no tensor is saved.
type Trace struct {
	// Limits are the bytes that saved tensors may occupy in each tier.
	Limits Limits `json:"limits"`
	// Write and Read are the measured bytes per second from the device to a tier and back; those of
	// the device itself are not used. Each direction carries one tensor at a time, whatever its
	// tier.
	Write [tiers]float64 `json:"write"`
	Read  [tiers]float64 `json:"read"`
	// Sizes are the tensors' bytes, in the order in which they are saved.
	Sizes []int64 `json:"sizes"`
	// Events are the tensors' numbers: each occurs twice, first when the step saves it and then
	// when the step uses it, after which it is freed. Times are the seconds of the events since the
	// first one, without the time that the step waited for transfers.
	Events []int     `json:"events"`
	Times  []float64 `json:"times"`
}

// A Placement is the place of one tensor between its two events.
type Placement struct {
	Tier Tier
	// Prefetch is the event after which the tensor is read back; unused for tensors on the device.
	Prefetch int
}

// A Plan has a placement for each tensor.
type Plan struct {
	Placements []Placement
	// Predicted is the result of Simulate for the plan.
	Predicted Prediction
}

// A Prediction is the predicted time and memory of a step with a plan.
type Prediction struct {
	// Seconds is the time of the step, Waited the part in which it waits for transfers.
	Seconds, Waited float64
	// Peak is the most bytes of saved tensors on the device.
	Peak int64
	// Exceeds says that Peak is above the device's limit, or another tier is too full.
	Exceeds bool
}

// Check returns an error if a trace can't be planned.
func (t *Trace) Check() error {
	n := len(t.Sizes)
	if n > MaxTensors || len(t.Events) != 2*n || len(t.Times) != 2*n {
		return fmt.Errorf("%d tensors, %d events, %d times: want two events and times for each of at most %d tensors", n, len(t.Events), len(t.Times), MaxTensors)
	}
	total := int64(0)
	for i, size := range t.Sizes {
		if size < 0 || size > maxBytes-total {
			return fmt.Errorf("tensor %d has %d bytes", i, size)
		}
		total += size
	}
	for tier := range tiers {
		if t.Limits[tier] < 0 || tier != Device && t.Limits[tier] > 0 && (!positive(t.Write[tier]) || !positive(t.Read[tier])) {
			return fmt.Errorf("%s: limit %d bytes, %v bytes/s to it, %v from it", tier, t.Limits[tier], t.Write[tier], t.Read[tier])
		}
	}
	return t.checkEvents()
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

func (t *Trace) checkEvents() error {
	saved, used, last := 0, make([]bool, len(t.Sizes)), 0.0
	for e, i := range t.Events {
		switch {
		case !(t.Times[e] >= last) || math.IsInf(t.Times[e], 0):
			return fmt.Errorf("event %d is at %v s, after one at %v s", e, t.Times[e], last)
		case i == saved && saved < len(t.Sizes):
			saved++
		case i < 0 || i >= saved || used[i]:
			return fmt.Errorf("event %d is of tensor %d, which is not saved then", e, i)
		default:
			used[i] = true
		}
		last = t.Times[e]
	}
	return nil
}

// lives returns the events at which each tensor is saved and used.
func (t *Trace) lives() (saved, used []int) {
	saved, used = make([]int, len(t.Sizes)), make([]int, len(t.Sizes))
	next := 0
	for e, i := range t.Events {
		if i == next {
			saved[i] = e
			next++
		} else {
			used[i] = e
		}
	}
	return saved, used
}

// Describe describes the plan in a line.
func (p *Plan) Describe(t *Trace) string {
	var count [tiers]int
	var bytes [tiers]int64
	for i, at := range p.Placements {
		count[at.Tier]++
		bytes[at.Tier] += t.Sizes[i]
	}
	where := make([]string, tiers)
	for tier := range tiers {
		where[tier] = fmt.Sprintf("%d on the %s (%.4g MB)", count[tier], tier, float64(bytes[tier])/1e6)
	}
	return fmt.Sprintf("%d saved tensors: ", len(p.Placements)) + strings.Join(where, ", ") + fmt.Sprintf(", %.4g MB on the device at most; a step is predicted to take %.4g ms, %.4g ms of them waiting for transfers",
		float64(p.Predicted.Peak)/1e6, 1e3*p.Predicted.Seconds, 1e3*p.Predicted.Waited)
}
