package placement

import (
	"time"

	"github.com/outboard-run/outboard"
)

// Outcome is the result of a simulation.
type Outcome struct {
	// Completion is when the last step ends.
	Completion time.Duration
	// GBSeconds is the memory that steps hold from launch to end, in 10^9 byte-seconds.
	GBSeconds float64
	// Steps has one entry for each step.
	Steps []Span
}

// Span is the simulated run of one step.
type Span struct {
	Launch, End time.Duration
	// Idle is how long it waited for inputs.
	Idle time.Duration
	// Waited is how long the first complete input was idle before the launch.
	Waited time.Duration
}

// Simulate executes the steps with these launch times on a virtual clock.
func Simulate(steps []Step, launch []time.Duration) (Outcome, error) {
	if err := Check(steps); err != nil {
		return Outcome{}, err
	}
	if len(launch) != len(steps) {
		return Outcome{}, outboard.Errorf(outboard.Invalid, "simulate", "%d launch times for %d steps", len(launch), len(steps))
	}
	seconds := make([]float64, len(launch))
	for i, l := range launch {
		seconds[i] = l.Seconds()
	}
	return outcome(steps, launch, runAll(steps, seconds)), nil
}

func outcome(steps []Step, launch []time.Duration, runs []run) Outcome {
	out := Outcome{Steps: make([]Span, len(steps))}
	for i := range steps {
		s, end := &steps[i], duration(runs[i].end)
		out.Steps[i] = Span{Launch: launch[i], End: end, Idle: end - launch[i] - s.Runs(), Waited: waited(s, runs, launch[i])}
		out.Completion = max(out.Completion, end)
		out.GBSeconds += float64(s.Memory) / 1e9 * (end - launch[i]).Seconds()
	}
	return out
}

func waited(s *Step, runs []run, launch time.Duration) (longest time.Duration) {
	for _, in := range s.Inputs {
		longest = max(longest, launch-duration(runs[in.From].end))
	}
	return longest
}

// run is the simulated run of a step, in seconds.
type run struct {
	consumed float64 // when all inputs are consumed
	end      float64
	output   curve // the fraction of its output that exists
}

func runAll(steps []Step, launch []float64) []run {
	runs := make([]run, len(steps))
	rerun(steps, launch, runs, 0)
	return runs
}

// runStep simulates a step, after its producers.
func runStep(s *Step, runs []run, launch float64) run {
	var from []curve
	var takes []float64
	ready := launch
	for _, in := range s.Inputs {
		if in.Takes > 0 {
			from, takes = append(from, runs[in.From].output), append(takes, in.Takes.Seconds())
		}
		ready = max(ready, runs[in.From].output.end())
	}
	served := curve{{launch, 0}}
	if len(from) > 0 {
		served = sum(from, takes).served(launch)
	}
	r := run{consumed: max(ready, served.end())}
	r.end = r.consumed + s.Work.Seconds()
	r.output = s.output(r, served)
	return r
}

func (s *Step) output(r run, served curve) curve {
	switch {
	case s.Emits == WhileWorking && s.Work > 0:
		return ramp(r.consumed, r.end, 1)
	case s.Emits == WhileConsuming && served.total() > 0:
		return served.scaled()
	}
	return jump(r.end, 1)
}
