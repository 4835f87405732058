package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/outboard-run/outboard/bench/paired"
)

// sample is one value of a row, and whether a disturbed run is behind it.
type sample struct {
	value     float64
	disturbed bool
}

// deviation returns the difference between a prediction and a measurement, in % of the latter.
func deviation(predicted, measured float64) float64 { return 100 * (predicted/measured - 1) }

// errorOf returns the size of a deviation as a sample.
func errorOf(deviation float64, disturbed bool) sample { return sample{math.Abs(deviation), disturbed} }

// undisturbed returns the samples of undisturbed runs.
func undisturbed(samples []sample) []sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return s.disturbed })
}

// values returns the samples' values, sorted.
func values(samples []sample) (sorted []float64) {
	for _, s := range samples {
		sorted = append(sorted, s.value)
	}
	slices.Sort(sorted)
	return sorted
}

// A statistic makes a row of samples.
type statistic func(name string, samples []sample) paired.Row

// reportSamples adds a row over all samples. If some of these are disturbed, it carries their number,
// and a second row is over the others.
func (b *runner) reportSamples(name string, samples []sample, of statistic) {
	if len(samples) == 0 {
		return // too few programs were chosen
	}
	quiet := undisturbed(samples)
	row := of(name, samples)
	row.Disturbed = len(samples) - len(quiet)
	b.Row(row)
	if row.Disturbed > 0 && len(quiet) > 0 {
		b.Row(of(name+", of undisturbed runs", quiet))
	}
}

// median is the median of samples in %.
func median(goal paired.Goal) statistic {
	return func(name string, samples []sample) paired.Row {
		return paired.NewRow(name, "%", "", values(samples), nil, goal)
	}
}

// quantile is the value in % that a share q of the samples does not exceed.
func quantile(q, most float64) statistic {
	return func(name string, samples []sample) paired.Row {
		sorted := values(samples)
		at := min(len(sorted)-1, int(q*float64(len(sorted))))
		row := paired.NewRow(name, "%", "", sorted[at:at+1], nil, paired.Goal{Max: most})
		row.Runs = len(sorted)
		return row
	}
}

// share is the share of samples, in %, that are not 0.
func share(least float64) statistic {
	return func(name string, samples []sample) paired.Row {
		count := 0
		for _, s := range samples {
			if s.value != 0 {
				count++
			}
		}
		row := paired.NewRow(name, "%", "", []float64{100 * float64(count) / float64(len(samples))}, nil, paired.Goal{Min: least})
		row.Runs = len(samples)
		return row
	}
}

// truth returns whether something holds as a sample of a share.
func truth(holds, disturbed bool) sample {
	if holds {
		return sample{1, disturbed}
	}
	return sample{0, disturbed}
}

// distribution returns a table of the shares of the errors, which are sorted, that are at most 1 %,
// 2 % and so on.
func distribution(name string, errs []float64) string {
	head, line, row := "| error at most |", "|---|", "| share of the cases |"
	for _, most := range []float64{1, 2, 3, 5, 8, 10, 20, 50} {
		count, _ := slices.BinarySearch(errs, math.Nextafter(most, most+1))
		head += fmt.Sprintf(" %g %% |", most)
		line += "---|"
		row += fmt.Sprintf(" %.0f %% |", 100*float64(count)/float64(len(errs)))
	}
	return fmt.Sprintf("Errors, %s:\n\n%s\n%s\n%s", name, head, line, row)
}
