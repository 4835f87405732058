package main

import (
	"errors"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// Stolen and foreign time count together; the bench's own does not, and neither does less than the
// counters resolve.
func TestDisturbedRuns(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		after           usage
		took            time.Duration
		stolen, foreign float64
		disturbed       bool
	}{
		"own work":             {usage{all: 3 * time.Second, own: 3 * time.Second}, 2 * time.Second, 0, 0, false},
		"below the bound":      {usage{all: 3040 * ms, own: 3 * time.Second, stolen: 30 * ms}, 2 * time.Second, 0.8, 1, false},
		"both above the bound": {usage{all: 3060 * ms, own: 3 * time.Second, stolen: 60 * ms}, 2 * time.Second, 1.5, 1.5, true},
		"stolen":               {usage{all: time.Second, own: time.Second, stolen: 200 * ms}, 2 * time.Second, 5, 0, true},
		"a short run":          {usage{all: 120 * ms, own: 100 * ms}, 100 * ms, 0, 10, false},
		"rounding":             {usage{all: 100 * ms, own: 120 * ms}, time.Second, 0, 0, false},
	} {
		got := timing("x", usage{}, c.after, c.took, 2)
		want := paired.Timing{What: "x", Seconds: c.took.Seconds(), Stolen: c.stolen, Foreign: c.foreign, Disturbed: c.disturbed}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// observed returns a runner whose runs are disturbed in turn as given, and the number of its runs.
func observed(disturbed ...bool) (b *runner, runs *int) {
	runs = new(int)
	b = &runner{repeatFor: time.Minute}
	b.late = func() lateness { return lateness{} }
	b.observe = func(what string, run func() error) (paired.Timing, error) {
		err := run()
		*runs++
		return paired.Timing{What: what, Seconds: 1, Disturbed: disturbed[min(*runs, len(disturbed))-1]}, err
	}
	return b, runs
}

// A disturbed run is repeated until it is undisturbed, but not for ever.
func TestDisturbedRunsAreRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		disturbed []bool
		repeated  time.Duration
		runs      int
		stays     bool
	}{
		"undisturbed":              {[]bool{false}, 0, 1, false},
		"undisturbed at the end":   {[]bool{true, true, false}, 0, 3, false},
		"always disturbed":         {[]bool{true}, 0, attempts, true},
		"the repetitions are over": {[]bool{true, false}, time.Minute, 1, true},
	} {
		b, runs := observed(c.disturbed...)
		b.repeated = c.repeated
		var late lateness
		stays, err := b.measure("x", &late, func() error { return nil })
		if err != nil || stays != c.stays || *runs != c.runs {
			t.Errorf("%s: %d runs, disturbed %v, %v", name, *runs, stays, err)
		}
	}
}

// Only the lateness of the run that counts is used.
func TestLatenessOfRepeatedRuns(t *testing.T) {
	b, runs := observed(true, false)
	var so lateness
	b.late = func() lateness { return so }
	var late lateness
	if _, err := b.measure("x", &late, func() error {
		so.up.Count++
		so.up.Sum += time.Duration(1+*runs) * time.Millisecond
		return nil
	}); err != nil || late.up.Count != 1 || late.up.Sum != 2*time.Millisecond {
		t.Errorf("%+v, %v", late, err)
	}
	broken := errors.New("broken")
	if _, err := b.measure("x", &late, func() error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// The rows of the disturbance are those of all parts of the report, whenever they were measured.
func TestDisturbanceOfAllParts(t *testing.T) {
	b := &runner{}
	b.Report.Parts = []paired.Part{
		{Timings: []paired.Timing{{Stolen: 9, Disturbed: true, Repeated: true}, {Stolen: 1}}},
		{Timings: []paired.Timing{{Stolen: 3, Foreign: 1, Disturbed: true}, {Stolen: 3}}},
	}
	b.disturbance()
	if row := b.Report.Rows[0]; row.Value != 3 || row.Runs != 3 || row.Holds {
		t.Errorf("%+v", row)
	}
	if row := b.Report.Rows[1]; row.Value != 0 || !row.Holds || row.Spread != [2]float64{0, 1} {
		t.Errorf("%+v", row)
	}
}
