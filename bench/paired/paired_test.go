package paired

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewRow(t *testing.T) {
	got := NewRow("read", "us", "local", []float64{9, 50, 10}, []float64{5, 4, 6}, Goal{Max: 60, MaxRatio: 1.5})
	want := Row{
		Name: "read", Unit: "us", Value: 10, Reference: 5, ReferenceName: "local", Ratio: 2,
		Wanted: "≤ 60, ratio ≤ 1.5", Holds: false, Runs: 3, Spread: [2]float64{9, 50},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestGoal(t *testing.T) {
	tests := map[string]struct {
		goal Goal
		row  Row
		want bool
	}{
		"within":     {Goal{Max: 5}, Row{Value: 5}, true},
		"above":      {Goal{Max: 5}, Row{Value: 5.1}, false},
		"too little": {Goal{Min: 5}, Row{Value: 4}, false},
		"ratio":      {Goal{MaxRatio: 1.3}, Row{Value: 1, Ratio: 1.4}, false},
		"low ratio":  {Goal{MinRatio: 0.9}, Row{Value: 1, Ratio: 0.8}, false},
		"no goal":    {Goal{}, Row{Value: 1e9}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.goal.holds(tt.row); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	for name, tt := range map[string]struct {
		values []float64
		want   float64
	}{"none": {nil, 0}, "odd": {[]float64{3, 1, 2}, 2}, "even": {[]float64{4, 1, 2, 3}, 2.5}} {
		if got := Median(tt.values); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
