package plan

import (
	"slices"
	"strings"
)

// Merge returns the layers as at most n: as long as there are more, the two neighbours with the
// least total work become one. The second result has, for each merged layer, the index of the first
// layer that is in it.
func Merge(layers []Layer, n int) ([]Layer, []int) {
	merged, first := slices.Clone(layers), make([]int, len(layers))
	for i := range first {
		first[i] = i
	}
	for len(merged) > max(n, 1) {
		at := lightestPair(merged)
		merged[at] = join(merged[at], merged[at+1])
		merged = slices.Delete(merged, at+1, at+2)
		first = slices.Delete(first, at+1, at+2)
	}
	return merged, first
}

// lightestPair returns the index of the first of the two neighbours with the least work.
func lightestPair(layers []Layer) int {
	at, least := 0, work(layers[0])+work(layers[1])
	for i := 1; i+1 < len(layers); i++ {
		if w := work(layers[i]) + work(layers[i+1]); w < least {
			at, least = i, w
		}
	}
	return at
}

func work(l Layer) float64 { return l.Forward + l.Backward + 2*l.Launch }

// join returns a layer that does the work of a and then that of b.
func join(a, b Layer) Layer {
	return Layer{
		Parts:      parts(a, b),
		Name:       span(a.Name, b.Name),
		Parameters: a.Parameters + b.Parameters,
		Output:     b.Output,
		Stored:     a.Stored + b.Stored,
		Forward:    a.Forward + b.Forward,
		Backward:   a.Backward + b.Backward,
		Launch:     a.Launch + b.Launch,
	}
}

// span names the layers from those of a to those of b: "first..last".
func span(a, b string) string {
	first, _, _ := strings.Cut(a, "..")
	if _, last, ok := strings.Cut(b, ".."); ok {
		b = last
	}
	return first + ".." + b
}

// parts returns the layers of which two layers consist, nil if none has operators.
func parts(a, b Layer) (all []Layer) {
	divisible := false
	for _, l := range []Layer{a, b} {
		divisible = divisible || len(l.Operators) > 0 || len(l.Parts) > 0
		if len(l.Parts) == 0 {
			all = append(all, l)
		}
		all = append(all, l.Parts...)
	}
	if !divisible {
		return nil
	}
	return all
}
