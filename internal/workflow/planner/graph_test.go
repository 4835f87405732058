package planner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/placement"
)

// What follows a fork takes from all of its branches; loops and tries are looked into.
func TestGraph(t *testing.T) {
	w, err := dsl.Parse("w.yaml", []byte(`document: {dsl: '1.0.0', namespace: a, name: w, version: '1.0.0'}
do:
  - read: {call: f}
  - both:
      fork:
        branches:
          - left: {call: f}
          - right:
              do:
                - one: {call: g}
                - two: {call: g}
  - each:
      for: {in: '${ [1, 2] }'}
      do:
        - careful:
            try: [{work: {call: f}}]
            catch: {}
  - note: {set: {a: 1}}
`))
	if err != nil {
		t.Fatal(err)
	}
	g := graphOf(w, map[string]history{"read": {time.Second, 10}, "both/left": {time.Second, 20}, "both/right/two": {time.Second, 30}})
	step := func(name string, work time.Duration, inputs ...placement.Input) placement.Step {
		return placement.Step{Name: name, Work: work, Inputs: inputs}
	}
	want := []placement.Step{
		step("read", time.Second),
		step("both/left", time.Second, placement.Input{From: 0, Bytes: 10}),
		step("both/right/one", 0, placement.Input{From: 0, Bytes: 10}),
		step("both/right/two", time.Second, placement.Input{From: 2}),
		step("each/careful/work", 0, placement.Input{From: 1, Bytes: 20}, placement.Input{From: 3, Bytes: 30}),
	}
	if diff := cmp.Diff(want, g.steps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTaskPath(t *testing.T) {
	for path, want := range map[string]string{
		"read": "read", "each[4]/careful#2/resize": "each/careful/resize", "again@2": "again", "a!/b@3[1]#2/c": "a/b/c",
	} {
		if got := taskPath(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}
