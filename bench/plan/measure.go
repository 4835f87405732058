package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// result is one program over one link.
type result struct {
	program *program
	link    *link
	runs    []run
	late    lateness // during these runs
	// local and remote are predicted from the local and from the remote trace.
	local, remote overhead.Prediction
}

// run is one run of a program that counts.
type run struct {
	seconds   float64
	disturbed bool
}

// middle returns the run with the median time.
func (r *result) middle() run { return middle(r.runs, func(of run) run { return of }) }

// wall returns the time of the middle run, in seconds.
func (r *result) wall() float64 { return r.middle().seconds }

// walls returns the times of all runs, in seconds, sorted.
func (r *result) walls() (seconds []float64) {
	for _, of := range r.runs {
		seconds = append(seconds, of.seconds)
	}
	slices.Sort(seconds)
	return seconds
}

// error returns the deviation of a prediction in %.
func (r *result) error(p *overhead.Prediction) float64 { return deviation(p.Wall.Seconds(), r.wall()) }

// sums are the resources that a program used in all its runs. Unlike times, they do not depend on
// the machine's other work.
type sums struct {
	runs int
	// client, node and workers are processor times: of `outboard run` and the program, of the
	// device's node, and of its workers.
	client, node, workers time.Duration
	// up and down are bytes on the link.
	up, down int64
}

// alike is the relative difference of two runs below which a third run would add no information.
const alike = 0.02

// settled reports whether a case needs no more runs: long runs average out disturbances, and short
// ones are repeated until two are alike.
func (r *result) settled() bool {
	s := r.walls()
	if len(s) < 2 {
		return len(s) == 1 && s[0] > longRun.Seconds()
	}
	return s[1]-s[0] <= alike*s[0]
}

// unsettled returns the cases that need another run.
func unsettled(results []*result) []*result {
	return slices.DeleteFunc(slices.Clone(results), (*result).settled)
}

// recordEvery is the number of runs over links for each pair of recordings, and each local run,
// between them.
const recordEvery = 4

// repeatLimit bounds the time in which a program's runs are repeated, so that the bench does not
// take hours on a busy machine.
const repeatLimit = 40 * time.Second

// measureProgram runs a program over links, and records it in turn with these runs, so that a machine
// that becomes slower meanwhile is the same to both. Then it predicts the program over these links as
// they were.
func (b *bench) measureProgram(ctx context.Context, p *program, over []link) ([]*result, error) {
	var results []*result
	for i := range over {
		results = append(results, &result{program: p, link: &over[i]})
	}
	p.traces = nil
	if err := b.runAll(ctx, p, results); err != nil {
		return nil, err
	}
	p.chooseTraces()
	var cases []keptCase
	for _, r := range results {
		cases = append(cases, keepCase(b, r))
	}
	if err := b.keep.add(p, &b.constants, cases...); err != nil {
		return nil, err
	}
	if err := predictCases(b.options(), p, results, cases); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	for _, r := range results {
		fmt.Fprintf(os.Stderr, "  %-24s %-24s late by %3.0f us, measured %8.3f s, from remote %8.3f (%+5.1f %%), from local %8.3f (%+5.1f %%) [%.3f..%.3f]\n", p.Name, r.link, r.late.total().Seconds()*1e6, r.wall(),
			r.remote.Wall.Seconds(), r.error(&r.remote), r.local.Wall.Seconds(), r.error(&r.local), r.local.Low.Seconds(), r.local.High.Seconds())
	}
	return results, nil
}

// predictCases predicts a program over the links of its cases.
func predictCases(o overhead.Options, p *program, results []*result, cases []keptCase) error {
	var links []overhead.Link
	for i := range cases {
		links = append(links, cases[i].Link)
	}
	local, err := overhead.Predict(opener(p.local), links, o)
	if err != nil {
		return err
	}
	remote, err := overhead.Predict(opener(p.remote), links, o)
	if err != nil {
		return err
	}
	for i, r := range results {
		r.local, r.remote = local[i], remote[i]
	}
	return nil
}

// runAll runs a program over each link, once, then again over the links that need it, and records it
// in turn with these runs.
func (b *bench) runAll(ctx context.Context, p *program, results []*result) error {
	var began time.Time
	for round := range b.Rounds(3, 2) {
		if round == 1 {
			began = time.Now()
		}
		for some := range slices.Chunk(unsettled(results), recordEvery) {
			if round > 0 && time.Since(began) > repeatLimit {
				return nil
			}
			if err := b.recordBoth(ctx, p); err != nil {
				return err
			}
			if err := b.reference(ctx, p); err != nil {
				return err
			}
			if err := b.count(ctx, &p.used, func() error { return b.runEach(ctx, some) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// runEach runs each case once.
func (b *runner) runEach(ctx context.Context, results []*result) error {
	for _, r := range results {
		b.rig.Node(deviceNode).SetLink(r.link.nominal)
		if err := b.runOver(ctx, r); err != nil {
			return fmt.Errorf("%s over %s: %w", r.program.Name, r.link, err)
		}
	}
	return nil
}

// count adds what the device's node, its workers and its link do during run.
func (b *runner) count(ctx context.Context, used *sums, run func() error) error {
	before, err := b.counters(ctx)
	if err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	after, err := b.counters(ctx)
	used.node += after.node - before.node
	used.workers += after.workers - before.workers
	used.up += after.up - before.up
	used.down += after.down - before.down
	return err
}

// counters reads the counters of the device's node when it has nothing left to do.
func (b *runner) counters(ctx context.Context) (c sums, err error) {
	node := b.rig.Node(deviceNode)
	if err := node.WaitIdle(ctx); err != nil {
		return c, err
	}
	c.node, c.workers, err = node.Processor()
	c.up, c.down = node.LinkBytes()
	return c, err
}
