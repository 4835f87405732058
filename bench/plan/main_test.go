package main

import "testing"

func TestTheBenchHasItsProgramsAndLinks(t *testing.T) {
	b := &bench{}
	b.choose()
	if len(b.links) != 12 || len(b.cases) < 8 {
		t.Errorf("%d links and %d programs, want 12 and at least 8", len(b.links), len(b.cases))
	}
}
