package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// whatIf runs programs whose driver library has an optimisation switched off (OUTBOARD_WITHOUT),
// and compares their times with the prediction.
func (b *bench) whatIf(ctx context.Context) error {
	link := netem.Link{RTT: 200 * time.Microsecond}
	b.rig.Node(deviceNode).SetLink(link)
	for _, off := range []struct {
		name string
		what overhead.WhatIf
	}{{"async", overhead.WhatIf{NoAsync: true}}, {"shadow", overhead.WhatIf{NoShadow: true}}, {"locality", overhead.WhatIf{NoLocality: true}}} {
		var errs []float64
		for _, p := range b.cases {
			var late lateness
			var wall time.Duration
			if err := b.lateDuring(&late, func() (err error) {
				wall, err = b.shortest(ctx, p, without(b.over(), off.name), 1)
				return err
			}); err != nil {
				return fmt.Errorf("%s without %s: %w", p.Name, off.name, err)
			}
			o := b.options()
			o.WhatIf = off.what
			predicted, err := overhead.Predict(opener(p.remote), []overhead.Link{emulated(b, link, &late)}, o)
			if err != nil {
				return err
			}
			e := predicted[0].Wall.Seconds()/wall.Seconds() - 1
			errs = append(errs, 100*math.Abs(e))
			fmt.Fprintf(os.Stderr, "  %-24s without %-7s measured %.3f s, predicted %.3f (%+.1f %%)\n", p.Name, off.name, wall.Seconds(), predicted[0].Wall.Seconds(), 100*e)
		}
		b.Row(paired.NewRow("--what-if "+off.name+"=off, against the library without it: median error", "%", "", errs, nil, paired.Goal{Max: 10}))
	}
	return nil
}

// without returns a launcher with an optimisation of the driver library switched off.
func without(launcher suite.Launcher, name string) suite.Launcher {
	return func(ctx context.Context, program string, args ...string) *exec.Cmd {
		cmd := launcher(ctx, program, args...)
		cmd.Env = append(cmd.Env, "OUTBOARD_WITHOUT="+name)
		return cmd
	}
}

// shortest returns the time of the shortest of a few runs. A long run is not repeated: it averages
// out disturbances.
func (b *bench) shortest(ctx context.Context, p *program, launcher suite.Launcher, runs int) (least time.Duration, err error) {
	for range b.Rounds(runs, 1) {
		r, err := b.runOnce(ctx, p, launcher)
		if err != nil {
			return 0, err
		}
		if least == 0 || r.Wall < least {
			least = r.Wall
		}
		if least > longRun {
			break
		}
	}
	return least, nil
}

// longRun is the length from which a run is not repeated.
const longRun = 1500 * time.Millisecond
