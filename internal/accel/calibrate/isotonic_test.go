package calibrate

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestIsotonic(t *testing.T) {
	for name, c := range map[string]struct{ values, want []float64 }{
		"none":                 {nil, []float64{}},
		"growing":              {[]float64{1, 2, 2, 5}, []float64{1, 2, 2, 5}},
		"one low":              {[]float64{110, 120, 130, 27, 176}, []float64{110, 120, 120, 120, 176}},
		"one high":             {[]float64{20, 60, 20, 20, 40}, []float64{20, 20, 20, 20, 40}},
		"a low one at the end": {[]float64{100, 110, 120, 30}, []float64{100, 110, 110, 110}},
		"falling":              {[]float64{3, 2, 1}, []float64{2, 2, 2}},
	} {
		if diff := cmp.Diff(c.want, isotonic(c.values)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The fitted sequence grows, and is nearer to the values than others that grow.
func TestIsotonicIsNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1000), 1, 12).Draw(t, "values")
		fitted := isotonic(values)
		if !slices.IsSorted(fitted) || len(fitted) != len(values) {
			t.Fatalf("%v for %v", fitted, values)
		}
		distance := func(of []float64) (sum float64) {
			for i := range values {
				sum += math.Abs(of[i] - values[i])
			}
			return sum
		}
		other := rapid.SliceOfN(rapid.Float64Range(0, 1000), len(values), len(values)).Draw(t, "other")
		if slices.Sort(other); distance(other) < distance(fitted)-1e-6 {
			t.Fatalf("%v is nearer to %v than %v", other, values, fitted)
		}
	})
}
