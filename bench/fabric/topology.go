package main

import (
	"context"
	"fmt"

	"github.com/outboard-run/outboard/bench/paired"
)

// A topology makes the calls of a row: a client, and the processes that the
// calls pass.
type topology struct {
	name   string
	client *process
	others []*process
}

func (w *topology) add(ctx context.Context, f *processGroup, s spec) error {
	p, err := f.add(ctx, s)
	if err == nil {
		w.others = append(w.others, p)
	}
	return err
}

func (w *topology) addClient(ctx context.Context, f *processGroup, s spec) (err error) {
	w.client, err = f.add(ctx, s)
	return err
}

// run makes the calls of l. The result has the resources that all processes used.
func (w *topology) run(l load) (result, error) {
	before, err := w.usage()
	if err != nil {
		return result{}, err
	}
	var r result
	if err := w.client.do("load", l, &r); err != nil {
		return r, err
	}
	after, err := w.usage()
	r.Used = r.Used.plus(after.minus(before))
	return r, err
}

func (w *topology) usage() (resources, error) {
	var total resources
	for _, p := range w.others {
		u, err := p.usage()
		if err != nil {
			return resources{}, err
		}
		total = total.plus(u)
	}
	return total, nil
}

// runs are the results of each topology, by its name.
type runs map[string][]result

// of returns one number of each result of a topology.
func (r runs) of(name string, number func(result) float64) []float64 {
	values := make([]float64, 0, len(r[name]))
	for _, one := range r[name] {
		values = append(values, number(one))
	}
	return values
}

// p50 returns the median latency of a result in microseconds.
func p50(r result) float64     { return r.P50 }
func p99(r result) float64     { return r.P99 }
func perCall(r result) float64 { return r.Seconds * 1e6 / float64(r.Calls) }
func cpuEach(r result) float64 { return r.Used.CPU * 1e6 / float64(r.Calls+r.Warm) }
func sleeps(r result) float64  { return r.Used.Switches / float64(r.Calls+r.Warm) }

// turns has the topologies make the calls of l in turn. The first round is not counted. A call that
// is lost or wrong is an error.
func turns(ctx context.Context, rounds int, l load, topologies ...*topology) (runs, error) {
	all := runs{}
	for round := range rounds + 1 {
		for _, w := range topologies {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r, err := w.run(l)
			switch {
			case err != nil:
				return nil, fmt.Errorf("%s: %w", w.name, err)
			case r.Calls == 0 || r.Lost+r.Wrong > 0:
				return nil, fmt.Errorf("%s: %d calls lost, %d wrong, of %d: %s", w.name, r.Lost, r.Wrong, r.Calls, r.Cause)
			case round > 0:
				all[w.name] = append(all[w.name], r)
			}
		}
	}
	return all, nil
}

// A comparison is a row that compares two topologies.
type comparison struct {
	title, unit     string
	name, reference string
	number          func(result) float64
	goal            paired.Goal
}

func (b *bench) compare(all runs, list ...comparison) {
	for _, c := range list {
		b.row(paired.NewRow(c.title, c.unit, c.reference, all.of(c.name, c.number), all.of(c.reference, c.number), c.goal))
	}
}
