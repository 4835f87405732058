package placement

import (
	"fmt"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// Emission is when a step's output exists.
type Emission int

// The emissions.
const (
	// AtEnd is an output that is whole when the step ends, and not there before.
	AtEnd Emission = iota
	// WhileWorking is an output that grows evenly while the step does its Work, after
	// it has consumed all input.
	WhileWorking
	// WhileConsuming is an output that grows with the input that was consumed. What is
	// left, behind it, is Work.
	WhileConsuming
)

// Step is one step of a workflow.
type Step struct {
	Name   string
	Inputs []Input
	// Work is how long the step runs beside consuming its inputs; without inputs it is
	// all of it.
	Work time.Duration
	// Emits is when its output exists.
	Emits Emission
	// Memory is what it holds from its launch to its end.
	Memory outboard.Bytes
	// Artifact names what a node must have to run it.
	Artifact string
}

// Input is what a step takes from another one.
type Input struct {
	// From is the index of the other step. Steps stand behind those they take from.
	From int
	// Bytes is how large the value is.
	Bytes outboard.Bytes
	// Takes is how long the step needs to consume it once it is there. An input that
	// takes no time must be there before the step's Work.
	Takes time.Duration
}

// Runs is how long a step takes that waits for nothing.
func (s *Step) Runs() time.Duration { return s.consumes() + s.Work }

func (s *Step) consumes() (sum time.Duration) {
	for _, in := range s.Inputs {
		sum += in.Takes
	}
	return sum
}

// Check says what is wrong with a graph.
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

// Median is the middle of recorded times, 0 without records. Of an even number it is
// the mean of the two in the middle.
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
