package main

import (
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
	right, all := 0, 0
	for _, p := range b.cases {
		of, err := limit(ctx, b, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		for _, confirmed := range of {
			if all++; confirmed {
				right++
			}
		}
	}
	if all == 0 {
		return nil
	}
	row := paired.NewRow("--max-slowdown: runs at the ends of its interval that confirm it", "%", "", []float64{100 * float64(right) / float64(all)}, nil, paired.Goal{Min: 95})
	row.Runs = all
	b.Row(row)
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
func limit(ctx context.Context, b *bench, p *program) (confirmed []bool, err error) {
	middle := netem.Link{RTT: 200 * time.Microsecond, BitsPerSecond: 200e6}
	b.rig.Node(deviceNode).SetLink(middle)
	var late lateness
	if err := b.lateDuring(&late, func() error {
		_, err := b.runOnce(ctx, p, b.over())
		return err
	}); err != nil {
		return nil, err
	}
	link := emulated(b, middle, &late)
	predicted, err := overhead.Predict(opener(p.local), []overhead.Link{link}, b.options())
	if err != nil {
		return nil, err
	}
	most := predicted[0].Slowdown()
	found, err := overhead.Require(opener(p.local), []time.Duration{link.RTT}, most, b.options())
	if err != nil {
		return nil, err
	}
	local, err := b.shortest(ctx, p, suite.Local, 2)
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
		slowdown, err := b.slowdown(ctx, p, netem.Link{RTT: middle.RTT, BitsPerSecond: c.bandwidth}, local)
		if err != nil {
			return nil, err
		}
		confirmed = append(confirmed, (slowdown <= most) == c.fits)
		fmt.Fprintf(os.Stderr, "  %-24s over %.0f Mbit/s, least bandwidth %.0f Mbit/s: slowdown %.2f, bound %.2f\n", p.Name, c.bandwidth/1e6, found[0].Bandwidth/1e6, slowdown, most)
	}
	return confirmed, nil
}

// slowdown returns the shortest run over a link as a multiple of local, the shortest local run.
func (b *bench) slowdown(ctx context.Context, p *program, l netem.Link, local time.Duration) (float64, error) {
	b.rig.Node(deviceNode).SetLink(l)
	remote, err := b.shortest(ctx, p, b.over(), 2)
	return remote.Seconds() / local.Seconds(), err
}

// together runs two programs at once over one link, and compares their times with the prediction.
func (b *bench) together(ctx context.Context) error {
	var errs []float64
	l := &b.links[len(b.links)/2]
	b.rig.Node(deviceNode).SetLink(l.nominal)
	for i := 0; i+1 < len(b.cases); i += 2 {
		pair := b.cases[i : i+2]
		var late lateness
		var walls []float64
		if err := b.lateDuring(&late, func() (err error) {
			walls, err = b.runTogether(ctx, pair)
			return err
		}); err != nil {
			return err
		}
		predicted, err := overhead.PredictTogether([]overhead.Open{opener(pair[0].remote), opener(pair[1].remote)}, emulated(b, l.nominal, &late), b.options())
		if err != nil {
			return err
		}
		for k, p := range pair {
			e := predicted[k].Wall.Seconds()/walls[k] - 1
			errs = append(errs, 100*max(e, -e))
			fmt.Fprintf(os.Stderr, "  %-24s beside another: measured %.3f s, predicted %.3f (%+.1f %%)\n", p.Name, walls[k], predicted[k].Wall.Seconds(), 100*e)
		}
	}
	if len(errs) == 0 {
		return nil // one program alone was chosen
	}
	b.Row(paired.NewRow("two programs that share a link and a device: median error", "%", "", errs, nil, paired.Goal{Max: 5}))
	return nil
}

// runTogether returns how long two programs that start at the same time take, in seconds, in the
// shortest of a few runs.
func (b *bench) runTogether(ctx context.Context, pair []*program) ([]float64, error) {
	var least []float64
	for range b.Rounds(2, 1) {
		walls, failed := make([]float64, len(pair)), make([]error, len(pair))
		var running sync.WaitGroup
		for k, p := range pair {
			running.Go(func() {
				r, err := b.runOnce(ctx, p, b.over("--memory", "512MiB"))
				walls[k], failed[k] = r.Wall.Seconds(), err
			})
		}
		running.Wait()
		if err := errors.Join(failed...); err != nil {
			return nil, err
		}
		if least == nil || slices.Max(walls) < slices.Max(least) {
			least = walls
		}
	}
	return least, nil
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
