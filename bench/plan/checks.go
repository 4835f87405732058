package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// limits checks requirements: a program runs over the two ends of the interval of the least
// bandwidth that is predicted to keep a slowdown. Over the upper end it keeps it, over the lower end
// it does not. The slowdown is that predicted for a link in the middle, so that a requirement exists.
func (b *bench) limits(ctx context.Context) error {
	var confirmed []sample
	for _, p := range b.cases {
		of, err := limit(ctx, b, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		confirmed = append(confirmed, of...)
	}
	b.reportSamples("--max-slowdown: runs at the ends of its interval that confirm it", confirmed, share(95))
	return nil
}

// The bandwidths over which a requirement is checked, in bit/s: over less a run takes long, and
// over more the emulation is the bound.
const (
	leastChecked = 5e6
	mostChecked  = 5e9
)

// limit checks the requirement of one program. It returns, for each end of the interval that exists,
// whether a run confirms it.
func limit(ctx context.Context, b *bench, p *program) (confirmed []sample, err error) {
	b.rig.Node(deviceNode).SetLink(typicalLink)
	var late lateness
	if _, err := b.several(ctx, p, b.over(), 1, &late); err != nil {
		return nil, err
	}
	link := emulated(b, typicalLink, &late)
	predicted, err := overhead.Predict(opener(p.local), []overhead.Link{link}, b.options())
	if err != nil {
		return nil, err
	}
	most := predicted[0].Slowdown()
	found, err := overhead.Require(opener(p.local), []time.Duration{link.RTT}, most, b.options())
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		bandwidth float64
		fits      bool
	}{{found[0].Low, false}, {found[0].High, true}} {
		if c.bandwidth < leastChecked || c.bandwidth > mostChecked {
			continue // there is no such end
		}
		slowdown, disturbed, err := b.slowdown(ctx, p, netem.Link{RTT: typicalLink.RTT, BitsPerSecond: c.bandwidth})
		if err != nil {
			return nil, err
		}
		confirmed = append(confirmed, truth((slowdown <= most) == c.fits, disturbed))
		fmt.Fprintf(os.Stderr, "  %-24s over %.0f Mbit/s, least bandwidth %.0f Mbit/s: slowdown %.2f, bound %.2f\n", p.Name, c.bandwidth/1e6, found[0].Bandwidth/1e6, slowdown, most)
	}
	return confirmed, nil
}

// slowdown returns the best run over a link as a multiple of the best local run, of two each in turn.
func (b *bench) slowdown(ctx context.Context, p *program, l netem.Link) (ratio float64, disturbed bool, err error) {
	b.rig.Node(deviceNode).SetLink(l)
	var remote, local result
	for range b.Rounds(2, 1) {
		for _, way := range []struct {
			launcher suite.Launcher
			of       *result
		}{{suite.Local, &local}, {b.over(), &remote}} {
			one, err := b.several(ctx, p, way.launcher, 1, &way.of.late)
			if err != nil {
				return 0, false, err
			}
			way.of.runs = append(way.of.runs, one)
		}
	}
	return remote.wall() / local.wall(), remote.middle().disturbed || local.middle().disturbed, nil
}

// together runs two programs at once over one link, and compares their times with the prediction.
func (b *bench) together(ctx context.Context) error {
	var errs []sample
	l := &b.links[len(b.links)/2]
	b.rig.Node(deviceNode).SetLink(l.nominal)
	for i := 0; i+1 < len(b.cases); i += 2 {
		pair := b.cases[i : i+2]
		var late lateness
		walls, err := b.runTogether(ctx, pair, &late)
		if err != nil {
			return err
		}
		predicted, err := overhead.PredictTogether([]overhead.Open{opener(pair[0].remote), opener(pair[1].remote)}, emulated(b, l.nominal, &late), b.options())
		if err != nil {
			return err
		}
		for k, p := range pair {
			e := deviation(predicted[k].Wall.Seconds(), walls[k].seconds)
			errs = append(errs, errorOf(e, walls[k].disturbed))
			fmt.Fprintf(os.Stderr, "  %-24s beside another: measured %.3f s, predicted %.3f (%+.1f %%)\n", p.Name, walls[k].seconds, predicted[k].Wall.Seconds(), e)
		}
	}
	b.reportSamples("two programs that share a link and a device: median error", errs, median(paired.Goal{Max: 5}))
	return nil
}

// runTogether returns how long two programs that start at the same time take, in the middle one of a
// few runs, by the longer program.
func (b *runner) runTogether(ctx context.Context, pair []*program, late *lateness) ([]run, error) {
	var all [][]run
	for range b.Rounds(2, 1) {
		walls := make([]run, len(pair))
		disturbed, err := b.measure(pair[0].Name+" beside "+pair[1].Name, late, func() error {
			failed := make([]error, len(pair))
			var running sync.WaitGroup
			for k, p := range pair {
				running.Go(func() {
					r, err := b.runOnce(ctx, p, b.over("--memory", "512MiB"))
					walls[k].seconds, failed[k] = r.Wall.Seconds(), err
				})
			}
			running.Wait()
			return errors.Join(failed...)
		})
		if err != nil {
			return nil, err
		}
		for k := range walls {
			walls[k].disturbed = disturbed
		}
		all = append(all, walls)
	}
	return middle(all, longest), nil
}

// longest returns the longest of some runs.
func longest(runs []run) run {
	return slices.MaxFunc(runs, func(a, b run) int { return cmp.Compare(a.seconds, b.seconds) })
}

// speed predicts a long trace for many links.
func (b *bench) speed(context.Context) error {
	calls, links := b.Rounds(10_000_000, 200_000), 1000
	var all []overhead.Link
	for i := range links {
		all = append(all, overhead.Link{RTT: time.Duration(1+i) * time.Microsecond, Up: 1e7 * float64(1+i), Down: 1e9})
	}
	o := overhead.Options{Constants: overhead.DefaultConstants()}
	began := time.Now()
	if _, err := overhead.Predict(func() (overhead.Source, error) { return &synthetic{calls: calls}, nil }, all, o); err != nil {
		return err
	}
	took := time.Since(began).Seconds() * 10_000_000 / float64(calls)
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.Row(paired.NewRow(fmt.Sprintf("10 million calls for 1,000 links (%d evaluated)", calls), "s", "", []float64{took}, nil, paired.Goal{Max: 60}))
	b.Row(paired.NewRow("memory of that prediction", "MB", "", []float64{float64(memory.HeapSys) / 1e6}, nil, paired.Goal{}))
	return nil
}

// synthetic is a trace of a program that sets arguments and launches kernels, ten calls to a wait.
type synthetic struct {
	calls, at int
	now       int64
}

var syntheticHeader = &trace.Header{
	API: "opencl", Mode: trace.Local, Program: trace.Program{Name: "synthetic"}, Client: trace.Machine{Cores: 2},
	Devices: []trace.Device{{Name: "device", Machine: trace.Machine{Cores: 2}}},
	Ops:     []trace.Op{{Name: "clSetKernelArg", Answer: "early"}, {Name: "clEnqueueNDRangeKernel", Answer: "early"}, {Name: "clFinish", Answer: "wait"}},
}

// Header implements overhead.Source.
func (*synthetic) Header() *trace.Header { return syntheticHeader }

// End implements overhead.Source.
func (s *synthetic) End() *trace.End { return &trace.End{Duration: s.now} }

// Next implements overhead.Source.
func (s *synthetic) Next() (trace.Record, error) {
	if s.at == s.calls {
		return trace.Record{}, io.EOF
	}
	s.at++
	r := trace.Record{Class: trace.Early, Gap: 500, Begin: s.now + 500, End: s.now + 900, Execute: 400, Forward: 72}
	switch s.at % 10 {
	case 3, 6, 9:
		r.Op, r.Command, r.Blocking, r.Queue, r.Forward = 1, true, trace.DeviceBlocking, 1, 120
		r.Start, r.DeviceTime = r.End, 5000
	case 0:
		r.Op, r.Class, r.Blocking, r.Queue, r.Backward = 2, trace.WaitedFor, trace.HostBlocking, 1, 32
		r.End += 20_000
	}
	s.now = r.End
	return r, nil
}
