package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// replay predicts runs from their own traces: each program is recorded over a link, and that run is
// predicted over the same link. The times of the program and of the device are those of the run
// itself, so the error is that of the model and of the constants, without the difference between
// two runs.
//
// The parts of each program's replays, by kinds of calls, locate the error.
func (b *bench) replay(ctx context.Context) error {
	var errs []sample
	var text strings.Builder
	text.WriteString(partsHead)
	for _, p := range b.cases {
		var parts []overhead.Part
		for i := range b.links {
			if !b.Quick && i%3 != 1 || i > replayed {
				continue
			}
			e, of, err := replayOver(ctx, b, p, &b.links[i])
			if err != nil {
				return fmt.Errorf("%s over %s: %w", p.Name, &b.links[i], err)
			}
			errs, parts = append(errs, e), sumParts(parts, of)
		}
		text.WriteString(partsRow(p.Name, parts))
	}
	b.Report.Notes = append(b.Report.Notes, text.String())
	b.reportReplays(errs)
	return nil
}

// reportReplays reports how far the predictions of replays are off.
func (b *runner) reportReplays(errs []sample) {
	b.reportSamples("a run predicted from its own trace, over the link that it was recorded on: median error", errs, median(paired.Goal{Max: 3}))
}

// replayed is the index of the last link considered: up to it, every third link is replayed. The
// slower links take long.
const replayed = 7

// replayOver returns the error, and the parts of the run.
func replayOver(ctx context.Context, b *bench, p *program, l *link) (e sample, parts []overhead.Part, err error) {
	b.rig.Node(deviceNode).SetLink(l.nominal)
	b.recordings++
	file := filepath.Join(b.traceFolder(), fmt.Sprintf("%s.replay.%d", p.short(), b.recordings))
	var late lateness
	var run suite.Result
	disturbed, err := b.measure(fmt.Sprintf("%s, recorded over %s", p.Name, l), &late, func() (err error) {
		run, err = b.runOnce(ctx, p, b.over("--no-trace", "--trace", file))
		return err
	})
	if err != nil {
		return e, nil, err
	}
	join, err := joinTime(file)
	if err != nil {
		return e, nil, err
	}
	c := keptCase{
		Name: l.String(), Link: emulated(b, l.nominal, &late), Trace: filepath.Base(file),
		Runs: []keptRun{{Seconds: (run.Wall - join).Seconds(), Disturbed: disturbed}},
	}
	if err := b.keep.add(p, &b.constants, c); err != nil {
		return e, nil, err
	}
	return predictReplay(b.options(), b.traceFolder(), p, &c)
}

// joinTime returns how long `outboard run` took to write a trace after the program's end, which is no
// part of the run that the trace predicts.
func joinTime(file string) (time.Duration, error) {
	src, err := opener(file)()
	if err != nil {
		return 0, err
	}
	end, err := ending(file)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	return max(0, info.ModTime().Sub(src.Header().Started.Add(time.Duration(end.Duration)))), nil
}

// predictReplay predicts a run from its own trace.
func predictReplay(o overhead.Options, folder string, p *program, c *keptCase) (e sample, parts []overhead.Part, err error) {
	open := opener(filepath.Join(folder, c.Trace))
	predicted, err := overhead.Predict(open, []overhead.Link{c.Link}, o)
	if err != nil {
		return e, nil, err
	}
	if parts, err = overhead.Attribute(open, c.Link, o); err != nil {
		return e, nil, err
	}
	end, err := ending(filepath.Join(folder, c.Trace))
	if err != nil {
		return e, nil, err
	}
	ran := c.Runs[0]
	parts[overhead.Start].Recorded += time.Duration(ran.Seconds*float64(time.Second)) - time.Duration(end.Duration) // before the recording
	off := deviation(predicted[0].Wall.Seconds(), ran.Seconds)
	fmt.Fprintf(os.Stderr, "  %-24s %-24s ran %.3f s (in the program %.3f), predicted %.3f (%+.1f %%)\n", p.Name, c.Name, ran.Seconds,
		time.Duration(end.Duration).Seconds(), predicted[0].Wall.Seconds(), off)
	fmt.Fprint(os.Stderr, partsRow("    parts", parts))
	return errorOf(off, ran.Disturbed), parts, nil
}

// partsHead is the head of the table of replays by kinds of calls.
var partsHead = "Replays by kinds of calls, in s: recorded, and how much more was predicted. The end of a run is in no part.\n\n" +
	partsColumns("program", func(k overhead.Kind) string { return k.String() }) + partsColumns("---", func(overhead.Kind) string { return "---" })

// partsColumns returns a row of the table of replays.
func partsColumns(first string, of func(overhead.Kind) string) string {
	var row strings.Builder
	row.WriteString("| " + first + " |")
	for k := overhead.Start; k <= overhead.Program; k++ {
		row.WriteString(" " + of(k) + " |")
	}
	return row.String() + "\n"
}

// partsRow returns a program's row of the table of replays.
func partsRow(name string, parts []overhead.Part) string {
	return partsColumns(name, func(k overhead.Kind) string {
		p := parts[k]
		return fmt.Sprintf("%.3f %+.3f", p.Recorded.Seconds(), (p.Predicted - p.Recorded).Seconds())
	})
}

// sumParts adds the parts of a run to those of other runs; sum is nil before the first.
func sumParts(sum, run []overhead.Part) []overhead.Part {
	if sum == nil {
		return slices.Clone(run)
	}
	for i := range sum {
		sum[i].Calls += run[i].Calls
		sum[i].Recorded += run[i].Recorded
		sum[i].Predicted += run[i].Predicted
	}
	return sum
}
