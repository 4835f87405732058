package main

import (
	"context"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/internal/workflow/placement"
)

// launchTimes compares the launch policies lazy, eager and nimble on the same graphs, on a
// virtual clock.
func (b *bench) launchTimes(context.Context) error {
	rows, err := placement.Compare(placement.Graphs())
	if err != nil {
		return err
	}
	by := map[string]map[placement.Policy]placement.Row{}
	for _, r := range rows {
		if by[r.Graph] == nil {
			by[r.Graph] = map[placement.Policy]placement.Row{}
		}
		by[r.Graph][r.Policy] = r
	}
	for _, g := range placement.Graphs() {
		b.launchRows(g.Name, by[g.Name])
	}
	return nil
}

// launchRows adds the rows of one graph. The policy nimble must be as fast as eager launches, and
// hold no more memory than they do.
func (b *bench) launchRows(graph string, rows map[placement.Policy]placement.Row) {
	nimble := rows[placement.Nimble]
	for _, other := range []placement.Policy{placement.Lazy, placement.Eager} {
		o, name := rows[other], other.String()
		b.Row(paired.NewRow("launch times, "+graph+": completion with nimble", "s", name,
			[]float64{nimble.Completion.Seconds()}, []float64{o.Completion.Seconds()}, paired.Goal{MaxRatio: 1}))
		goal := paired.Goal{}
		if other == placement.Eager {
			goal.MaxRatio = 1
		}
		b.Row(paired.NewRow("launch times, "+graph+": memory with nimble", "GB s", name,
			[]float64{nimble.GBSeconds}, []float64{o.GBSeconds}, goal))
	}
}
