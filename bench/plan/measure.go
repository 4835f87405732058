package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// result is one program over one link.
type result struct {
	program *program
	link    *link
	walls   []float64 // measured, in seconds
	late    lateness  // during these runs
	// local and remote are predicted from the local and from the remote trace.
	local, remote overhead.Prediction
}

// wall returns the time of the shortest run, in seconds: a disturbance only makes a run longer.
func (r *result) wall() float64 { return slices.Min(r.walls) }

func (r *result) error(p *overhead.Prediction) float64 { return p.Wall.Seconds()/r.wall() - 1 }

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
	if len(r.walls) < 2 {
		return len(r.walls) == 1 && r.walls[0] > longRun.Seconds()
	}
	s := slices.Sorted(slices.Values(r.walls))
	return s[1]-s[0] <= alike*s[0]
}

// repeatLimit bounds the time in which a program's runs are repeated, so that the bench does not
// take hours on a busy machine.
const repeatLimit = 40 * time.Second

// measureProgram runs a program over all links in turn, then predicts it over these links as they
// were.
func (b *bench) measureProgram(ctx context.Context, p *program) ([]*result, error) {
	var results []*result
	for i := range b.links {
		results = append(results, &result{program: p, link: &b.links[i]})
	}
	if err := b.runAll(ctx, p, results); err != nil {
		return nil, err
	}
	var links []overhead.Link
	for _, r := range results {
		links = append(links, emulated(b, r.link.nominal, &r.late))
	}
	local, err := overhead.Predict(opener(p.local), links, b.options())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	remote, err := overhead.Predict(opener(p.remote), links, b.options())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	for i, r := range results {
		r.local, r.remote = local[i], remote[i]
		fmt.Fprintf(os.Stderr, "  %-24s %-24s late by %3.0f us, measured %8.3f s, from remote %8.3f (%+5.1f %%), from local %8.3f (%+5.1f %%) [%.3f..%.3f]\n", p.Name, r.link, r.late.total().Seconds()*1e6, r.wall(),
			r.remote.Wall.Seconds(), 100*r.error(&r.remote), r.local.Wall.Seconds(), 100*r.error(&r.local), r.local.Low.Seconds(), r.local.High.Seconds())
	}
	return results, nil
}

// runAll runs a program over each link, once, then again over the links that need it, and sums the
// resources used.
func (b *bench) runAll(ctx context.Context, p *program, results []*result) error {
	node := b.rig.Node(deviceNode)
	if err := node.WaitIdle(ctx); err != nil {
		return err
	}
	own, ended, err := node.Processor()
	if err != nil {
		return err
	}
	up, down := node.LinkBytes()
	began := time.Now()
	for round := range b.Rounds(3, 2) {
		for _, r := range results {
			if r.settled() || round > 0 && time.Since(began) > repeatLimit {
				continue
			}
			node.SetLink(r.link.nominal)
			var run suite.Result
			err := b.lateDuring(&r.late, func() (err error) {
				run, err = b.runOnce(ctx, p, b.over())
				return err
			})
			if err != nil {
				return fmt.Errorf("%s over %s: %w", p.Name, r.link, err)
			}
			r.walls = append(r.walls, run.Wall.Seconds())
			p.used.runs++
			p.used.client += run.CPU
		}
	}
	if err := node.WaitIdle(ctx); err != nil {
		return err
	}
	ownAfter, endedAfter, err := node.Processor()
	upAfter, downAfter := node.LinkBytes()
	p.used.node, p.used.workers = ownAfter-own, endedAfter-ended
	p.used.up, p.used.down = upAfter-up, downAfter-down
	return err
}

// runOnce runs a program; a failure exit status of the program is no error.
func (b *bench) runOnce(ctx context.Context, p *program, launcher suite.Launcher) (r suite.Result, err error) {
	err = b.meter.during(func() error {
		r = p.Run(ctx, launcher, p.home)
		if r.Err != nil && r.ExitStatus() < 0 {
			return fmt.Errorf("%w: %s", r.Err, r.Stderr)
		}
		return nil
	})
	return r, err
}
