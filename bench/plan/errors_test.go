package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// A row over all samples tells how many are of disturbed runs; a second row is without these.
func TestRowsOfDisturbedRuns(t *testing.T) {
	type row struct {
		Name      string
		Value     float64
		Runs      int
		Disturbed int
		Holds     bool
	}
	for name, c := range map[string]struct {
		samples []sample
		want    []row
	}{
		"none":           {nil, nil},
		"all quiet":      {[]sample{{1, false}, {2, false}, {9, false}}, []row{{"x", 2, 3, 0, true}}},
		"some disturbed": {[]sample{{1, false}, {9, true}, {8, true}}, []row{{"x", 8, 3, 2, false}, {"x, of undisturbed runs", 1, 1, 0, true}}},
		"all disturbed":  {[]sample{{9, true}}, []row{{"x", 9, 1, 1, false}}},
	} {
		b := &runner{}
		b.reportSamples("x", c.samples, median(paired.Goal{Max: 3}))
		var got []row
		for _, r := range b.Report.Rows {
			got = append(got, row{r.Name, r.Value, r.Runs, r.Disturbed, r.Holds})
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestStatistics(t *testing.T) {
	samples := []sample{{3, false}, {0, false}, {1, true}, {2, false}}
	for name, c := range map[string]struct {
		of   statistic
		want float64
	}{"median": {median(paired.Goal{}), 1.5}, "quantile": {quantile(0.5, 8), 2}, "greatest": {quantile(1, 8), 3}, "share": {share(95), 75}} {
		if row := c.of("x", samples); row.Value != c.want || row.Runs != len(samples) {
			t.Errorf("%s: %+v", name, row)
		}
	}
}

// A disturbed run counts only where there is no other.
// The time of a case is that of its middle run, of the undisturbed ones if there are any.
func TestMiddleRun(t *testing.T) {
	for name, c := range map[string]struct {
		runs []run
		want run
	}{
		"of two":         {[]run{{3, false}, {2, false}}, run{2, false}},
		"of three":       {[]run{{3, false}, {1, false}, {2, false}}, run{2, false}},
		"undisturbed":    {[]run{{2, true}, {3, false}, {4, false}}, run{3, false}},
		"only disturbed": {[]run{{5, true}, {4, true}}, run{4, true}},
	} {
		if got := (&result{runs: c.runs}).middle(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Estimates are sums of the predicted times of the runs that a section makes.
func TestEstimates(t *testing.T) {
	b := &bench{cases: []*program{
		{recorded: time.Second, typical: 2 * time.Second, expected: []time.Duration{time.Second, 10 * time.Second}},
		{recorded: 2 * time.Second, typical: 3 * time.Second},
	}}
	for name, c := range map[string]struct{ got, want time.Duration }{
		"runs":          {b.runs(2, 3)(), 19 * time.Second},
		"first program": {firstProgram(b), time.Second + 1500*time.Millisecond + 10*time.Second + 2*3*time.Second + 2*time.Second},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

// Predictions read the traces of the middle runs.
func TestMiddleTraces(t *testing.T) {
	p := &program{traces: map[trace.Mode][]recording{
		trace.Local:  {{run{3, false}, "c"}, {run{1, false}, "a"}, {run{2, false}, "b"}},
		trace.Remote: {{run{1, true}, "d"}, {run{2, false}, "e"}},
	}}
	p.chooseTraces()
	if p.local != "b" || p.remote != "e" || p.recorded != 2*time.Second {
		t.Errorf("local %q of %v, remote %q", p.local, p.recorded, p.remote)
	}
}

// Of the runs of two programs together, the one counts whose longer program is in the middle.
func TestLongest(t *testing.T) {
	all := [][]run{{{1, false}, {9, false}}, {{2, false}, {3, false}}, {{5, false}, {1, false}}}
	if got := middle(all, longest); got[0].seconds != 5 {
		t.Error(got)
	}
}
