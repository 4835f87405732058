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
	for i, p := range b.cases {
		if i > 0 && p.estimate() > b.Left() {
			b.Missing(p.Name)
			continue
		}
		if err := b.recalibrate(ctx); err != nil {
			return err
		}
		of, err := b.measureProgram(ctx, p, b.links)
		if err != nil {
			return err
		}
		results = append(results, of...)
	}
	b.reportPredictions(results)
	reportAgain(b)
	b.reportSums(results)
	b.reportRepeats(results)
	return b.publish(results)
}

// reportPredictions reports how far the predictions are off.
func (b *bench) reportPredictions(results []*result) {
	b.reportErrors("predicted from the trace of a remote run", results, func(r *result) *overhead.Prediction { return &r.remote }, paired.Goal{Max: 3})
	b.reportErrors("predicted from the trace of a local run", results, func(r *result) *overhead.Prediction { return &r.local }, paired.Goal{Max: 5})
	b.reportReferences(results)
}

// reportErrors adds the rows of one kind of predictions.
func (b *runner) reportErrors(name string, results []*result, of func(*result) *overhead.Prediction, most paired.Goal) {
	var errs, covered []sample
	for _, r := range results {
		p, mid := of(r), r.middle()
		wall := time.Duration(mid.seconds * float64(time.Second))
		errs = append(errs, errorOf(r.error(p), mid.disturbed))
		covered = append(covered, truth(wall >= p.Low && wall <= p.High, mid.disturbed))
	}
	b.reportSamples(name+": median error", errs, median(most))
	b.reportSamples(name+": error of 9 in 10", errs, quantile(0.9, 8))
	b.reportSamples(name+": greatest error", errs, quantile(1, 10))
	b.Report.Notes = append(b.Report.Notes, distribution(name, values(errs)))
	b.reportSamples(name+": the interval holds the measured time", covered, share(90))
}

// reportReferences reports the local runs between those over links, beside the recorded local run: if
// the processors have become slower since the recording, so have all runs that it predicts. The
// predicted slowdown is that of the local trace, the measured one is a multiple of the local runs.
func (b *bench) reportReferences(results []*result) {
	var text strings.Builder
	text.WriteString("Local runs between those over links, beside the local recording:\n\n| program | recorded in the program, s | local runs, s | median, s | difference |\n|---|---|---|---|---|\n")
	var errs, floor []sample
	for _, p := range b.cases {
		local := &result{runs: p.references}
		if len(local.runs) == 0 {
			continue // the run had no time for it
		}
		seconds := local.walls()
		middle := paired.Median(seconds)
		fmt.Fprintf(&text, "| %s | %.3f | %.3f to %.3f | %.3f | %+.1f %% |\n", p.Name, p.recorded.Seconds(), seconds[0], seconds[len(seconds)-1], middle, deviation(middle, p.recorded.Seconds()))
		for _, of := range p.references {
			floor = append(floor, errorOf(deviation(of.seconds, middle), of.disturbed))
		}
		for _, r := range results {
			if mid := r.middle(); r.program == p {
				errs = append(errs, errorOf(deviation(r.local.Slowdown(), mid.seconds/local.wall()), mid.disturbed || local.middle().disturbed))
			}
		}
	}
	b.reportSamples("slowdown from the trace of a local run, against local runs in turn: median error", errs, median(paired.Goal{}))
	b.reportSamples("noise floor: local runs of a program against their median, median difference", floor, median(paired.Goal{}))
	b.reportSamples("noise floor: local runs of a program against their median, difference of 9 in 10", floor, quantile(0.9, 0))
	b.Report.Notes = append(b.Report.Notes, text.String())
}

// reportRepeats reports by how much the runs of one program over one link differ: no prediction can
// be closer than that.
func (b *bench) reportRepeats(results []*result) {
	var text strings.Builder
	text.WriteString("By how much repeated runs over one link differ, the longest against the shortest:\n\n| program | links | median | greatest |\n|---|---|---|---|\n")
	for _, p := range b.cases {
		var differ []float64
		for _, r := range results {
			if walls := r.walls(); r.program == p && len(walls) > 1 {
				differ = append(differ, deviation(walls[len(walls)-1], walls[0]))
			}
		}
		if slices.Sort(differ); len(differ) > 0 {
			fmt.Fprintf(&text, "| %s | %d | %.1f %% | %.1f %% |\n", p.Name, len(differ), differ[len(differ)/2], differ[len(differ)-1])
		}
	}
	b.Report.Notes = append(b.Report.Notes, text.String())
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
		i := slices.IndexFunc(results, func(r *result) bool { return r.program == p })
		if i < 0 {
			continue // the run had no time for it
		}
		of := results[i]
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
