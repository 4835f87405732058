package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// result is one program over one link.
type result struct {
	program *program
	link    *link
	walls   []float64 // measured, in seconds
	// predicted from the local and from the remote trace.
	local, remote overhead.Prediction
}

func (r *result) wall() float64 { return paired.Median(r.walls) }

func (r *result) error(p *overhead.Prediction) float64 { return p.Wall.Seconds()/r.wall() - 1 }

// options are those of all predictions: client and device share this machine.
func (b *bench) options() overhead.Options {
	return overhead.Options{Constants: b.constants, SameMachine: true, Intervals: true}
}

// predictions runs every program over every link and compares.
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
	return b.publish(results)
}

// measureProgram predicts a program over all links, then runs it over them in turn.
func (b *bench) measureProgram(ctx context.Context, p *program) ([]*result, error) {
	var links []overhead.Link
	for i := range b.links {
		links = append(links, b.links[i].measured)
	}
	local, err1 := overhead.Predict(opener(p.local), links, b.options())
	remote, err2 := overhead.Predict(opener(p.remote), links, b.options())
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	var results []*result
	for i := range b.links {
		results = append(results, &result{program: p, link: &b.links[i], local: local[i], remote: remote[i]})
	}
	for range b.Rounds(3, 1) {
		for _, r := range results {
			b.rig.Node(deviceNode).SetLink(r.link.nominal)
			run := p.Run(ctx, b.over(), p.home)
			if run.Err != nil && run.ExitStatus() < 0 {
				return nil, fmt.Errorf("%s over %s: %w: %s", p.Name, r.link, run.Err, run.Stderr)
			}
			r.walls = append(r.walls, run.Wall.Seconds())
		}
	}
	for _, r := range results {
		fmt.Fprintf(os.Stderr, "  %-24s %-24s measured %8.3f s, from remote %8.3f (%+5.1f %%), from local %8.3f (%+5.1f %%) [%.3f..%.3f]\n", p.Name, r.link, r.wall(),
			r.remote.Wall.Seconds(), 100*r.error(&r.remote), r.local.Wall.Seconds(), 100*r.error(&r.local), r.local.Low.Seconds(), r.local.High.Seconds())
	}
	return results, nil
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
	b.Row(b.quantile(name+": error of 9 in 10", errs, 0.9, 8))
	b.Row(b.quantile(name+": greatest error", errs, 1, 10))
	row := paired.NewRow(name+": the interval holds the measured time", "%", "", []float64{100 * float64(covered) / float64(len(results))}, nil, paired.Goal{Min: 90})
	row.Runs = len(results)
	b.Row(row)
}

func (b *bench) quantile(name string, sorted []float64, q, most float64) paired.Row {
	at := min(len(sorted)-1, int(q*float64(len(sorted))))
	row := paired.NewRow(name, "%", "", []float64{sorted[at]}, nil, paired.Goal{Max: most})
	row.Runs = len(sorted)
	return row
}
