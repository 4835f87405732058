package placement_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
	. "github.com/outboard-run/outboard/internal/workflow/placement"
)

const s = time.Second

// launch chooses times and simulates them.
func launch(t testing.TB, p Policy, steps []Step) Outcome {
	t.Helper()
	at, err := Launch(p, steps)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Simulate(steps, at)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLaunch(t *testing.T) {
	for name, c := range map[string]struct {
		steps []Step
		want  map[Policy][]string // launch-end of each step
	}{
		"one": {
			[]Step{{Work: 3 * s}},
			map[Policy][]string{Lazy: {"0s-3s"}, Eager: {"0s-3s"}, Nimble: {"0s-3s"}},
		},
		"output at end": {
			[]Step{{Work: 4 * s}, {Inputs: []Input{{From: 0, Takes: 2 * s}}, Work: s}},
			map[Policy][]string{Lazy: {"0s-4s", "4s-7s"}, Eager: {"0s-4s", "0s-7s"}, Nimble: {"0s-4s", "4s-7s"}},
		},
		"output while working, fast consumer": {
			[]Step{{Work: 4 * s, Emits: WhileWorking}, {Inputs: []Input{{From: 0, Takes: 2 * s}}, Work: s}},
			map[Policy][]string{Lazy: {"0s-4s", "4s-7s"}, Eager: {"0s-4s", "0s-5s"}, Nimble: {"0s-4s", "2s-5s"}},
		},
		"output while working, slow consumer": {
			[]Step{{Work: 4 * s, Emits: WhileWorking}, {Inputs: []Input{{From: 0, Takes: 6 * s}}, Work: s}},
			map[Policy][]string{Lazy: {"0s-4s", "4s-11s"}, Eager: {"0s-4s", "0s-7s"}, Nimble: {"0s-4s", "0s-7s"}},
		},
		"one input is early": { // five seconds' work exist at 2 s, one more at 10 s
			[]Step{{Work: 2 * s}, {Work: 10 * s}, {Inputs: []Input{{From: 0, Takes: 5 * s}, {From: 1, Takes: s}}, Work: s}},
			map[Policy][]string{Lazy: {"0s-2s", "0s-10s", "10s-17s"}, Eager: {"0s-2s", "0s-10s", "0s-12s"}, Nimble: {"0s-2s", "0s-10s", "5s-12s"}},
		},
		"an input that takes no time": {
			[]Step{{Work: 2 * s}, {Work: 10 * s}, {Inputs: []Input{{From: 0, Takes: 5 * s}, {From: 1}}, Work: s}},
			map[Policy][]string{Lazy: {"0s-2s", "0s-10s", "10s-16s"}, Eager: {"0s-2s", "0s-10s", "0s-11s"}, Nimble: {"0s-2s", "0s-10s", "5s-11s"}},
		},
		// The last step needs six seconds for what the middle one passes on: were that
		// launched when it never waits, at 8 s, the last one would end at 14 s.
		"passing on": {
			[]Step{
				{Work: 10 * s, Emits: WhileWorking},
				{Inputs: []Input{{From: 0, Takes: 2 * s}}, Emits: WhileConsuming},
				{Inputs: []Input{{From: 1, Takes: 6 * s}}},
			},
			map[Policy][]string{Lazy: {"0s-10s", "10s-12s", "12s-18s"}, Eager: {"0s-10s", "0s-10s", "0s-10s"}, Nimble: {"0s-10s", "4s-10s", "4s-10s"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for policy, want := range c.want {
				var got []string
				for _, span := range launch(t, policy, c.steps).Steps {
					got = append(got, fmt.Sprintf("%v-%v", span.Launch.Round(time.Microsecond), span.End.Round(time.Microsecond)))
				}
				if diff := cmp.Diff(got, want); diff != "" {
					t.Errorf("%v: %s", policy, diff)
				}
			}
		})
	}
}

// drawSteps makes a graph.
func drawSteps(t *rapid.T) []Step {
	n := rapid.IntRange(1, 12).Draw(t, "steps")
	steps := make([]Step, n)
	for i := range steps {
		steps[i] = Step{
			Name: fmt.Sprint("s", i), Work: seconds(t, 0, 10), Memory: outboard.Bytes(rapid.IntRange(0, 4).Draw(t, "memory")) * 1e9,
			Emits: Emission(rapid.IntRange(0, 2).Draw(t, "emits")),
		}
		for from := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				steps[i].Inputs = append(steps[i].Inputs, Input{From: from, Takes: seconds(t, 0, 6)})
			}
		}
	}
	return steps
}

func seconds(t *rapid.T, low, high int) time.Duration {
	return time.Duration(rapid.IntRange(low*4, high*4).Draw(t, "quarters")) * s / 4
}

// slack is the rounding error of times, which are whole nanoseconds.
const slack = time.Microsecond

// TestPolicies checks that nimble completes when eager does, holds memory no longer, and
// that lazy is never faster.
func TestPolicies(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steps := drawSteps(r)
		lazy, eager, nimble := launch(t, Lazy, steps), launch(t, Eager, steps), launch(t, Nimble, steps)
		if nimble.Completion > eager.Completion+slack || eager.Completion > lazy.Completion+slack {
			r.Fatalf("completion: nimble %v, eager %v, lazy %v", nimble.Completion, eager.Completion, lazy.Completion)
		}
		if nimble.GBSeconds > eager.GBSeconds+1e-4 || lazy.GBSeconds > nimble.GBSeconds+1e-4 {
			r.Fatalf("GB-seconds: nimble %v, eager %v, lazy %v", nimble.GBSeconds, eager.GBSeconds, lazy.GBSeconds)
		}
		for i := range steps {
			if nimble.Steps[i].End > eager.Steps[i].End+slack {
				r.Fatalf("step %d ends at %v, eager at %v", i, nimble.Steps[i].End, eager.Steps[i].End)
			}
			if lazy.Steps[i].Idle > slack || nimble.Steps[i].Idle < -slack {
				r.Fatalf("step %d is idle for %v, lazily for %v", i, nimble.Steps[i].Idle, lazy.Steps[i].Idle)
			}
			if steps[i].Emits != WhileConsuming && nimble.Steps[i].Idle > slack {
				r.Fatalf("step %d is idle for %v", i, nimble.Steps[i].Idle)
			}
		}
	})
}

// TestNimbleIsLatest checks that any later launch delays the end of some step.
func TestNimbleIsLatest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steps := drawSteps(r)
		at, err := Launch(Nimble, steps)
		if err != nil {
			r.Fatal(err)
		}
		before, err := Simulate(steps, at)
		if err != nil {
			r.Fatal(err)
		}
		i := rapid.IntRange(0, len(steps)-1).Draw(r, "step")
		if steps[i].Runs() == 0 {
			return // a step without work has no unique launch time
		}
		at[i] += time.Millisecond
		after, err := Simulate(steps, at)
		if err != nil {
			r.Fatal(err)
		}
		for k := range steps {
			if after.Steps[k].End > before.Steps[k].End+slack {
				return
			}
		}
		r.Fatalf("step %d could be launched at %v: before %v", i, at[i], before.Steps)
	})
}

// TestAgainstTicks compares the curves with a simulation in discrete time.
func TestAgainstTicks(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steps := drawSteps(r)
		at := make([]time.Duration, len(steps))
		for i := range at {
			at[i] = seconds(r, 0, 20)
		}
		got, err := Simulate(steps, at)
		if err != nil {
			r.Fatal(err)
		}
		want := ticked(steps, at)
		for i := range steps {
			if d := math.Abs(got.Steps[i].End.Seconds() - want[i]); d > 0.05*float64(i+2) {
				r.Fatalf("step %d ends at %v, with ticks at %v", i, got.Steps[i].End, want[i])
			}
		}
	})
}

// ticked simulates steps in discrete time, as a reference.
func ticked(steps []Step, at []time.Duration) []float64 {
	const tick = 0.01
	n := len(steps)
	made, eaten, worked, ends := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	done := make([]bool, n)
	for now, left := 0.0, n; left > 0; now += tick {
		for i := range steps {
			if done[i] || now < at[i].Seconds() {
				continue
			}
			there, takes, whole := 0.0, 0.0, true
			for _, in := range steps[i].Inputs {
				takes += in.Takes.Seconds()
				there += made[in.From] * in.Takes.Seconds()
				whole = whole && made[in.From] >= 1
			}
			switch {
			case eaten[i] < takes-1e-9:
				eaten[i] = max(eaten[i], min(there, eaten[i]+tick))
				if steps[i].Emits == WhileConsuming {
					made[i] = eaten[i] / takes
					if made[i] > 1-1e-9 {
						made[i] = 1
					}
				}
			case whole:
				worked[i] += tick
				if steps[i].Emits == WhileWorking && steps[i].Work > 0 {
					made[i] = min(1, worked[i]/steps[i].Work.Seconds())
				}
			}
			if eaten[i] >= takes-1e-9 && whole && worked[i] >= steps[i].Work.Seconds()-1e-9 {
				done[i], ends[i], made[i] = true, now, 1
				left--
			}
		}
	}
	return ends
}

func TestMedian(t *testing.T) {
	for want, records := range map[time.Duration][]time.Duration{
		0: nil, 3: {3}, 4: {9, 4, 1}, 5: {8, 2, 1, 9},
	} {
		if got := Median(records); got != want {
			t.Errorf("%v: got %v, want %v", records, got, want)
		}
	}
}

func TestWrongGraphs(t *testing.T) {
	for name, steps := range map[string][]Step{
		"itself": {{Inputs: []Input{{From: 0}}}}, "later": {{Inputs: []Input{{From: 1}}}, {}}, "negative": {{Work: -1}},
		"before": {{}, {Inputs: []Input{{From: -1}}}}, "takes": {{}, {Inputs: []Input{{Takes: -1}}}},
	} {
		if _, err := Launch(Nimble, steps); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Simulate([]Step{{}}, nil); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("too few times: got %v", err)
	}
	if _, err := Launch(Policy(7), nil); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("unknown policy: got %v", err)
	}
}

func TestParsePolicy(t *testing.T) {
	for _, p := range []Policy{Lazy, Eager, Nimble} {
		if got, err := ParsePolicy(p.String()); got != p || err != nil {
			t.Errorf("%v: got %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("late"); err == nil {
		t.Error("late is a policy")
	}
}

// TestReport compares the table with the golden file.
func TestReport(t *testing.T) {
	var got strings.Builder
	if err := Report(&got, Graphs()); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got.String(), string(want)); diff != "" {
		t.Errorf("%s\n%s", diff, got.String())
	}
}
