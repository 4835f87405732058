package plan

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// pipeline returns a job with a layer for each stage, whose backward passes take twice as long.
func pipeline(micros int, forward ...float64) (*Job, Choice) {
	j := &Job{Devices: []Device{{Name: "d", Speed: 1, Memory: 1e9, Bandwidth: 1}}, Batch: micros, MicroBatches: []int{1}, Replicas: []int{1}}
	c := Choice{Replicas: 1, MicroBatch: 1}
	for i, f := range forward {
		j.Layers = append(j.Layers, Layer{Name: "l", Forward: f, Backward: 2 * f})
		c.Stages = append(c.Stages, Stage{i, i + 1, 0})
	}
	return j, c
}

// Worked by hand: 1F1B of three micro-batches through stages of 1 and 2 s. The first stage passes
// two micro-batches forward and then alternates; the second one is never idle between its first
// input, at 1 s, and its last gradient, 3*(2+4) s later; the first stage's last backward pass follows.
func TestScheduledTimeByHand(t *testing.T) {
	j, c := pipeline(3, 1, 2)
	if err := j.Check(); err != nil {
		t.Fatal(err)
	}
	p, err := j.Evaluate(c)
	if err != nil || p.Scheduled != 1+3*6+2 {
		t.Errorf("scheduled in %v s (%v), want %v", p.Scheduled, err, 1+3*6+2)
	}
	// The closed form adds the longest forward and the longest backward
	// pass for each further micro-batch, as GPipe.
	if p.Time != 3+2*2+6+2*4 {
		t.Errorf("the closed form is %v s, want %v", p.Time, 3+2*2+6+2*4)
	}
}

// A stage that computes longest backward is no longer idle because another one computes longest
// forward, which the closed form assumes.
func TestScheduledTimeOfUnequalStages(t *testing.T) {
	j, c := pipeline(2, 1, 1)
	j.Layers[0].Forward, j.Layers[0].Backward = 3, 1
	j.Layers[1].Forward, j.Layers[1].Backward = 1, 5
	if err := j.Check(); err != nil {
		t.Fatal(err)
	}
	// Stage 0 passes both forward, until 6 s. Stage 1 has the first one from 3 to 9 s and the second
	// one from 9 to 15 s; stage 0 ends at 16 s. By the closed form: 4+3 s forward, 6+5 s backward.
	if p, err := j.Evaluate(c); err != nil || p.Scheduled != 16 || p.Time != 18 {
		t.Errorf("scheduled in %v s, %v by the closed form (%v), want 16 and 18", p.Scheduled, p.Time, err)
	}
}

// With stages of the same length and without sends the schedule takes what the closed form says;
// never less than its longest stage has to compute, never more than the closed form.
func TestScheduledTimeIsWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forward := rapid.SliceOfN(number(1, 9), 1, 6).Draw(t, "forward")
		equal := rapid.Bool().Draw(t, "equal")
		longest := 0.0
		for i := range forward {
			if equal {
				forward[i] = forward[0]
			}
			longest = max(longest, forward[i])
		}
		micros := rapid.IntRange(1, 12).Draw(t, "micro-batches")
		j, c := pipeline(micros, forward...)
		if err := j.Check(); err != nil {
			t.Fatal(err)
		}
		p, err := j.Evaluate(c)
		if err != nil {
			t.Fatal(err)
		}
		if p.Scheduled > p.Time+1e-9 || p.Scheduled < 3*longest*float64(micros) || math.IsNaN(p.Scheduled) {
			t.Fatalf("scheduled in %v s; the closed form is %v, the longest stage computes %v", p.Scheduled, p.Time, 3*longest*float64(micros))
		}
		if equal && math.Abs(p.Scheduled-p.Time) > 1e-9 {
			t.Fatalf("equal stages: scheduled in %v s, the closed form is %v", p.Scheduled, p.Time)
		}
	})
}
