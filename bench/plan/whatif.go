package main

import (
	"context"
	"fmt"
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
		var errs []sample
		for _, p := range b.cases {
			var late lateness
			measured, err := b.several(ctx, p, without(b.over(), off.name), 1, &late)
			if err != nil {
				return fmt.Errorf("%s without %s: %w", p.Name, off.name, err)
			}
			o := b.options()
			o.WhatIf = off.what
			predicted, err := overhead.Predict(opener(p.remote), []overhead.Link{emulated(b, link, &late)}, o)
			if err != nil {
				return err
			}
			e := deviation(predicted[0].Wall.Seconds(), measured.seconds)
			errs = append(errs, errorOf(e, measured.disturbed))
			fmt.Fprintf(os.Stderr, "  %-24s without %-7s measured %.3f s, predicted %.3f (%+.1f %%)\n", p.Name, off.name, measured.seconds, predicted[0].Wall.Seconds(), e)
		}
		b.reportSamples("--what-if "+off.name+"=off, against the library without it: median error", errs, median(paired.Goal{Max: 10}))
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
