package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// recording is a trace of a program, and the run that it recorded.
type recording struct {
	run
	file string
}

// recordBoth records a program once on the machine's own driver and once on the leased device, over
// a link without delay. The traces are added to the program's.
func (b *runner) recordBoth(ctx context.Context, p *program) error {
	b.rig.Node(deviceNode).SetLink(netem.Link{})
	for _, mode := range []trace.Mode{trace.Local, trace.Remote} {
		if err := b.recordOnce(ctx, p, mode); err != nil {
			return err
		}
	}
	return nil
}

// recordOnce adds one trace to a program's.
func (b *runner) recordOnce(ctx context.Context, p *program, mode trace.Mode) error {
	b.recordings++
	file := filepath.Join(b.traceFolder(), fmt.Sprintf("%s.%s.%d", p.short(), mode, b.recordings))
	launcher := b.over("--no-trace", "--trace", file)
	if mode == trace.Local {
		launcher = b.start("--local", "--no-trace", "--trace", file)
	}
	disturbed, err := b.measure(p.Name+", recorded, "+string(mode), &lateness{}, func() error {
		_, err := b.runOnce(ctx, p, launcher)
		return err
	})
	if err != nil {
		return err
	}
	end, err := ending(file)
	if err != nil {
		return err
	}
	took := time.Duration(end.Duration)
	fmt.Fprintf(os.Stderr, "  %-28s %-7s %8d calls, ran %v\n", p.Name, mode, end.Records, took.Round(time.Millisecond))
	if p.traces == nil {
		p.traces = map[trace.Mode][]recording{}
	}
	p.traces[mode] = append(p.traces[mode], recording{run{took.Seconds(), disturbed}, file})
	return nil
}

// chooseTraces has predictions read the program's middle traces.
func (p *program) chooseTraces() {
	p.local, p.recorded = middleTrace(p.traces[trace.Local])
	p.remote, _ = middleTrace(p.traces[trace.Remote])
}

// middleTrace returns the trace whose run was neither the shortest nor the longest, if there are
// several, and the time of that run: the prediction is for the middle one of several runs, too.
func middleTrace(all []recording) (file string, took time.Duration) {
	of := middle(all, func(r recording) run { return r.run })
	return of.file, time.Duration(of.seconds * float64(time.Second))
}

// middle returns the element with the median time, the lower one of two, of those that were not
// disturbed if there are any.
func middle[E any](all []E, runOf func(E) run) E {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b E) int { return cmp.Compare(runOf(a).seconds, runOf(b).seconds) })
	quiet := slices.DeleteFunc(slices.Clone(sorted), func(e E) bool { return runOf(e).disturbed })
	if len(quiet) > 0 {
		sorted = quiet
	}
	return sorted[(len(sorted)-1)/2]
}
