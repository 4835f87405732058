package main

import (
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/accel/overhead"
)

func TestTheBenchHasItsProgramsAndLinks(t *testing.T) {
	b := &bench{}
	if err := b.choose(); err != nil {
		t.Fatal(err)
	}
	if len(b.links) != 12 || len(b.cases) < 8 {
		t.Errorf("%d links and %d programs, want 12 and at least 8", len(b.links), len(b.cases))
	}
}

func TestDistribution(t *testing.T) {
	got := distribution("x", []float64{0.5, 1, 2.5, 60})
	if !strings.HasSuffix(got, "| share of the cases | 50 % | 50 % | 75 % | 75 % | 75 % | 75 % | 75 % | 75 % |") {
		t.Error(got)
	}
}

// Cases are repeated until two runs are alike, and long ones not at all.
func TestSettled(t *testing.T) {
	for name, c := range map[string]struct {
		walls []float64
		want  bool
	}{
		"not run yet": {nil, false}, "a short run": {[]float64{0.9}, false}, "a long run": {[]float64{9}, true},
		"two that differ": {[]float64{0.9, 1}, false}, "two alike": {[]float64{0.9, 0.91}, true},
		"the shortest two differ": {[]float64{1, 0.9, 1.01}, false}, "the shortest two are alike": {[]float64{0.9, 1.4, 0.905}, true},
	} {
		r := &result{}
		for _, seconds := range c.walls {
			r.runs = append(r.runs, run{seconds: seconds})
		}
		if got := r.settled(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A replay's row has, for each kind of calls, the recorded time and the difference of the prediction.
func TestPartsOfReplays(t *testing.T) {
	run := make([]overhead.Part, overhead.Program+1)
	run[overhead.Waits] = overhead.Part{Kind: overhead.Waits, Calls: 2, Recorded: time.Second, Predicted: 1250 * time.Millisecond}
	parts := sumParts(sumParts(nil, run), run)
	const want = "| x | 0.000 +0.000 | 0.000 +0.000 | 0.000 +0.000 | 0.000 +0.000 | 2.000 +0.500 | 0.000 +0.000 | 0.000 +0.000 |\n"
	if got := partsRow("x", parts); got != want || parts[overhead.Waits].Calls != 4 {
		t.Errorf("%s%+v", got, parts)
	}
	if run[overhead.Waits].Calls != 2 {
		t.Error("the parts of a run were changed")
	}
	if rows := strings.Split(partsHead, "\n"); strings.Count(rows[2], "|") != strings.Count(want, "|") || strings.Count(rows[3], "|") != strings.Count(want, "|") {
		t.Errorf("the head has other columns: %s", partsHead)
	}
}

// The report has the constants, and says so if the machine was too busy to measure them.
func TestConstantsAreReported(t *testing.T) {
	for spread, holds := range map[float64]bool{0.05: true, 0.5: false} {
		b := &bench{constants: overhead.DefaultConstants()}
		b.constants.ForwardingSpread = spread
		b.constants.Wakes[1] = overhead.WakeUp{Pause: 100 * time.Microsecond, Wake: 30 * time.Microsecond}
		reportConstants(b)
		if row := b.Report.Rows[0]; row.Holds != holds || (row.Reason == "") != holds {
			t.Errorf("a spread of %g: %+v", spread, row)
		}
		if note := b.Report.Notes[0]; !strings.Contains(note, ", 30µs after 100µs,") {
			t.Error(note)
		}
	}
}

// The scripts that the bench runs exist, and none of the other programs is in the table.
func TestOtherPrograms(t *testing.T) {
	t.Chdir("../..")
	others, err := otherPrograms()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{}
	if err := b.choose(); err != nil {
		t.Fatal(err)
	}
	for _, p := range others {
		for _, of := range b.cases {
			if p.Name == of.Name {
				t.Errorf("%s is in the table", p.Name)
			}
		}
	}
}
