package placement

import (
	"fmt"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// Emission says when a step's output exists.
type Emission int

// The emissions.
const (
	// AtEnd is an output that exists from the step's end on.
	AtEnd Emission = iota
	// WhileWorking is an output that grows linearly during the step's Work, after it has
	// consumed all input.
	WhileWorking
	// WhileConsuming is an output that grows in proportion to the consumed input. Work
	// follows it.
	WhileConsuming
)

// Step is one step of a workflow.
type Step struct {
	Name   string
	Inputs []Input
	// Work is the execution time without the consumption of inputs.
	Work time.Duration
	// Emits says when its output exists.
	Emits Emission
	// Memory is held from its launch to its end.
	Memory outboard.Bytes
	// Artifact names the artifact that a node needs to run it.
	Artifact string
}

// Input is an edge of the graph: a value that a step consumes from another one.
type Input struct {
	// From is the index of the producer, which precedes its consumers.
	From int
	// Bytes is the size of the value.
	Bytes outboard.Bytes
	// Takes is the time to consume the whole value. An input that takes no time must be
	// complete before the step's Work.
	Takes time.Duration
}

// Runs returns the execution time of a step that never waits.
func (s *Step) Runs() time.Duration { return s.consumes() + s.Work }

func (s *Step) consumes() (sum time.Duration) {
	for _, in := range s.Inputs {
		sum += in.Takes
	}
	return sum
}

// Check validates a graph.
func Check(steps []Step) error {
	for i := range steps {
		s := &steps[i]
		if s.Work < 0 {
			return outboard.Errorf(outboard.Invalid, "check steps", "step %q: its work is negative", s.Name)
		}
		for _, in := range s.Inputs {
			if in.From < 0 || in.From >= i || in.Takes < 0 {
				return outboard.Errorf(outboard.Invalid, "check steps", "step %q takes from step %d for %v: want one before step %d, and a time", s.Name, in.From, in.Takes, i)
			}
		}
	}
	return nil
}

// Median returns the median of recorded times, 0 without records. For an even number it
// is the mean of the two middle ones.
func Median(records []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(records))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	low, high := sorted[(n-1)/2], sorted[n/2]
	return low + (high-low)/2
}

// String implements fmt.Stringer.
func (e Emission) String() string {
	names := []string{"at end", "while working", "while consuming"}
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("emission(%d)", int(e))
}
