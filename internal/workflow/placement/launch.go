package placement

import (
	"fmt"
	"math"
	"time"

	"github.com/outboard-run/outboard"
)

// Policy selects how launch times are chosen.
type Policy int

// The policies.
const (
	// Lazy launches a step when all its inputs are complete.
	Lazy Policy = iota
	// Eager launches all steps with the workflow.
	Eager
	// Nimble launches a step at the latest time at which no step ends later than if
	// all were launched eagerly.
	Nimble
)

var policyNames = []string{"lazy", "eager", "nimble"}

// String returns the policy's name.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", int(p))
}

// ParsePolicy parses a policy's name.
func ParsePolicy(name string) (Policy, error) {
	for i, n := range policyNames {
		if n == name {
			return Policy(i), nil
		}
	}
	return 0, outboard.Errorf(outboard.Invalid, "read the launch policy", "%q: want lazy, eager or nimble", name)
}

// Launch returns when each step is launched, counted from the workflow's start.
func Launch(p Policy, steps []Step) ([]time.Duration, error) {
	if err := Check(steps); err != nil {
		return nil, err
	}
	var seconds []float64
	switch p {
	case Lazy:
		seconds = lazy(steps)
	case Eager:
		seconds = make([]float64, len(steps))
	case Nimble:
		seconds = nimble(steps)
	default:
		return nil, outboard.Errorf(outboard.Invalid, "choose launch times", "%v is no policy", p)
	}
	out := make([]time.Duration, len(steps))
	for i, s := range seconds {
		out[i] = duration(s)
	}
	return out, nil
}

// duration rounds down to a nanosecond, with a tolerance of a thousandth of one for
// floating-point errors.
func duration(seconds float64) time.Duration {
	return time.Duration(math.Floor(seconds*float64(time.Second) + 1e-3))
}

func lazy(steps []Step) []float64 {
	launch, runs := make([]float64, len(steps)), make([]run, len(steps))
	for i := range steps {
		for _, in := range steps[i].Inputs {
			launch[i] = max(launch[i], runs[in.From].end)
		}
		runs[i] = runStep(&steps[i], runs, launch[i])
	}
	return launch
}

// nimble starts from the eager times and delays one step after another. A step whose output does
// not depend on when it consumes is launched so that it never waits, which delays nothing. For
// other steps the latest time is searched for.
func nimble(steps []Step) []float64 {
	launch := make([]float64, len(steps))
	runs := runAll(steps, launch)
	for i := range steps {
		s := &steps[i]
		free := max(0, runs[i].consumed-s.consumes().Seconds())
		if s.Emits == WhileConsuming && moves(steps, launch, runs, i, free) {
			free = latest(steps, launch, runs, i, free)
		}
		launch[i] = free
		runs[i] = runStep(s, runs, free)
		rerun(steps, launch, runs, i+1)
	}
	return launch
}

// tolerance is a time difference that is ignored, in seconds.
const tolerance = 1e-10

// moves reports whether launching a step at that time delays the end of any step.
func moves(steps []Step, launch []float64, runs []run, i int, at float64) bool {
	changed := append([]run(nil), runs...)
	changed[i] = runStep(&steps[i], changed, at)
	if changed[i].end > runs[i].end+tolerance {
		return true
	}
	rerun(steps, launch, changed, i+1)
	for k := i + 1; k < len(steps); k++ {
		if changed[k].end > runs[k].end+tolerance {
			return true
		}
	}
	return false
}

// latest bisects for the latest launch that delays no end, before a time that is too late.
func latest(steps []Step, launch []float64, runs []run, i int, late float64) float64 {
	early := launch[i]
	for range 50 {
		if middle := early + (late-early)/2; moves(steps, launch, runs, i, middle) {
			late = middle
		} else {
			early = middle
		}
	}
	return early
}

// rerun simulates the steps from the given one on again.
func rerun(steps []Step, launch []float64, runs []run, from int) {
	for k := from; k < len(steps); k++ {
		runs[k] = runStep(&steps[k], runs, launch[k])
	}
}
