package placement

import (
	"fmt"
	"math"
	"time"

	"github.com/outboard-run/outboard"
)

// Policy is how launch times are chosen.
type Policy int

// The policies.
const (
	// Lazy launches a step when all its inputs are there.
	Lazy Policy = iota
	// Eager launches all steps with the workflow.
	Eager
	// Nimble launches a step at the latest time at which no step ends later than if
	// all were launched eagerly.
	Nimble
)

var policyNames = []string{"lazy", "eager", "nimble"}

// String is the policy's name.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", int(p))
}

// ParsePolicy reads a policy's name.
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

// duration rounds up what is a hair's breadth below a nanosecond and down what is not.
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

// nimble begins with the eager times and launches one step after another later. For
// a step whose output does not depend on when it consumed there is a rule: it must
// never wait, and that moves nothing. For the others the time is searched for.
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

// hair is a time that does not matter, in seconds.
const hair = 1e-10

// moves says whether a step that is launched at that time makes any step end later.
func moves(steps []Step, launch []float64, runs []run, i int, at float64) bool {
	changed := append([]run(nil), runs...)
	changed[i] = runStep(&steps[i], changed, at)
	if changed[i].end > runs[i].end+hair {
		return true
	}
	rerun(steps, launch, changed, i+1)
	for k := i + 1; k < len(steps); k++ {
		if changed[k].end > runs[k].end+hair {
			return true
		}
	}
	return false
}

// latest finds the latest launch from 0 to a time that is too late.
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

// rerun runs the steps from the given one on again.
func rerun(steps []Step, launch []float64, runs []run, from int) {
	for k := from; k < len(steps); k++ {
		runs[k] = runStep(&steps[k], runs, launch[k])
	}
}
