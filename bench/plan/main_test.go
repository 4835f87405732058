package main

import (
	"strings"
	"testing"
)

func TestTheBenchHasItsProgramsAndLinks(t *testing.T) {
	b := &bench{}
	b.choose()
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
