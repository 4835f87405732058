package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// replay predicts runs from their own traces: each program is recorded over a link, and that run is
// predicted over the same link. The times of the program and of the device are those of the run
// itself, so the error is that of the model and of the constants, without the difference between
// two runs.
func replay(ctx context.Context, b *bench) (row paired.Row, err error) {
	var errs []float64
	for _, p := range b.cases {
		for i := range b.links {
			if !b.Quick && i%3 != 1 || i > replayed {
				continue
			}
			e, err := replayOver(ctx, b, p, &b.links[i])
			if err != nil {
				return row, fmt.Errorf("%s over %s: %w", p.Name, &b.links[i], err)
			}
			errs = append(errs, math.Abs(e))
		}
	}
	return paired.NewRow("a run predicted from its own trace, over the link that it was recorded on: median error", "%", "", errs, nil, paired.Goal{Max: 3}), nil
}

// replayed is the index of the last link considered: up to it, every third link is replayed. The
// slower links take long.
const replayed = 7

// replayOver returns the error in %.
func replayOver(ctx context.Context, b *bench, p *program, l *link) (float64, error) {
	b.rig.Node(deviceNode).SetLink(l.nominal)
	file := filepath.Join(b.Dir, p.short()+".replay")
	var late lateness
	var run suite.Result
	if err := b.lateDuring(&late, func() (err error) {
		run, err = b.runOnce(ctx, p, b.over("--no-trace", "--trace", file))
		return err
	}); err != nil {
		return 0, err
	}
	predicted, err := overhead.Predict(opener(file), []overhead.Link{emulated(b, l.nominal, &late)}, b.options())
	if err != nil {
		return 0, err
	}
	end, err := ending(file)
	if err != nil {
		return 0, err
	}
	e := 100 * (predicted[0].Wall.Seconds()/run.Wall.Seconds() - 1)
	fmt.Fprintf(os.Stderr, "  %-24s %-24s ran %.3f s (in the program %.3f), predicted %.3f (%+.1f %%)\n", p.Name, l, run.Wall.Seconds(),
		time.Duration(end.Duration).Seconds(), predicted[0].Wall.Seconds(), e)
	return e, nil
}
