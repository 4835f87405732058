package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// options returns the options of all predictions: client and device share this machine.
func (b *bench) options() overhead.Options {
	return overhead.Options{Constants: b.constants, SameMachine: true, Intervals: true}
}

// predictions runs every program over every link and compares the times with the predictions.
func (b *bench) predictions(ctx context.Context) error {
	var results []*result
	for _, p := range b.cases {
		of, err := b.measureProgram(ctx, p)
		if err != nil {
			return err
		}
		results = append(results, of...)
	}
	b.reportErrors("predicted from the trace of a remote run", results, func(r *result) *overhead.Prediction { return &r.remote }, paired.Goal{Max: 3})
	b.reportErrors("predicted from the trace of a local run", results, func(r *result) *overhead.Prediction { return &r.local }, paired.Goal{Max: 5})
	b.reportSums(results)
	b.reportRepeats(results)
	return b.publish(results)
}

// reportErrors adds the rows of one kind of predictions.
func (b *bench) reportErrors(name string, results []*result, of func(*result) *overhead.Prediction, median paired.Goal) {
	var errs []float64
	covered := 0
	for _, r := range results {
		p := of(r)
		errs = append(errs, 100*math.Abs(r.error(p)))
		if wall := time.Duration(r.wall() * float64(time.Second)); wall >= p.Low && wall <= p.High {
			covered++
		}
	}
	slices.Sort(errs)
	b.Row(paired.NewRow(name+": median error", "%", "", errs, nil, median))
	b.Row(quantile(name+": error of 9 in 10", errs, 0.9, 8))
	b.Row(quantile(name+": greatest error", errs, 1, 10))
	b.Report.Notes = append(b.Report.Notes, distribution(name, errs))
	row := paired.NewRow(name+": the interval holds the measured time", "%", "", []float64{100 * float64(covered) / float64(len(results))}, nil, paired.Goal{Min: 90})
	row.Runs = len(results)
	b.Row(row)
}

// reportRepeats reports by how much the runs of one program over one link differ: no prediction can
// be closer than that.
func (b *bench) reportRepeats(results []*result) {
	var text strings.Builder
	text.WriteString("By how much repeated runs over one link differ, the longest against the shortest:\n\n| program | links | median | greatest |\n|---|---|---|---|\n")
	for _, p := range b.cases {
		var differ []float64
		for _, r := range results {
			if r.program == p && len(r.walls) > 1 {
				differ = append(differ, 100*(slices.Max(r.walls)/r.wall()-1))
			}
		}
		if slices.Sort(differ); len(differ) > 0 {
			fmt.Fprintf(&text, "| %s | %d | %.1f %% | %.1f %% |\n", p.Name, len(differ), differ[len(differ)/2], differ[len(differ)-1])
		}
	}
	b.Report.Notes = append(b.Report.Notes, text.String())
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

// quantile returns the row of the error that a share q of the sorted errors does not exceed.
func quantile(name string, sorted []float64, q, most float64) paired.Row {
	at := min(len(sorted)-1, int(q*float64(len(sorted))))
	row := paired.NewRow(name, "%", "", []float64{sorted[at]}, nil, paired.Goal{Max: most})
	row.Runs = len(sorted)
	return row
}

// reportSums compares quantities that do not depend on the machine's other work: messages, bytes,
// processor time.
func (b *bench) reportSums(results []*result) {
	var text strings.Builder
	text.WriteString("What does not depend on the machine's other work, for each run of a program on average. " +
		"Round trips and bytes are predicted from the local trace and counted in the remote one, bytes also on the link; " +
		"processor time is predicted from the remote trace. The start of a run is in no prediction of processor time.\n\n" +
		"| program | round trips | counted | MB up | counted | on the link | MB down | counted | on the link | client, s | measured | workers, s | measured | node, s |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	trips, bytes := []float64{}, []float64{}
	for _, p := range b.cases {
		of := results[slices.IndexFunc(results, func(r *result) bool { return r.program == p })]
		l, r, runs := of.local.Traffic, of.remote.Traffic, p.used.runs
		mb := func(n uint64) float64 { return float64(n) / 1e6 }
		per := func(d time.Duration) float64 { return d.Seconds() / float64(max(1, runs)) }
		w := of.remote.Work
		fmt.Fprintf(&text, "| %s | %d | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", p.Name, l.Waited, r.Waited,
			mb(l.Up), mb(r.Up), float64(p.used.up)/1e6/float64(runs), mb(l.Down), mb(r.Down), float64(p.used.down)/1e6/float64(runs),
			(w.Program + w.Relay).Seconds(), per(p.used.client), (w.Worker + w.Device).Seconds(), per(p.used.workers), per(p.used.node))
		trips = append(trips, 100*math.Abs(float64(l.Waited)/float64(max(1, r.Waited))-1))
		bytes = append(bytes, 100*math.Abs(float64(l.Up+l.Down)/float64(max(1, r.Up+r.Down))-1))
	}
	b.Row(paired.NewRow("round trips from a local trace against those counted: median difference", "%", "", trips, nil, paired.Goal{Max: 1}))
	b.Row(paired.NewRow("bytes from a local trace against those counted: median difference", "%", "", bytes, nil, paired.Goal{Max: 1}))
	b.Report.Notes = append(b.Report.Notes, text.String())
}
