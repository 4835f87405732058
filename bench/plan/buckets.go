package main

import (
	"context"
	"fmt"
	"os"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// buckets compares predictions with runs over links that the kernel's token buckets bound, which
// share no code with the emulation: they would reveal an error that the emulation and the model
// have in common. The buckets add no delay.
func (b *bench) buckets(ctx context.Context) error {
	b.rig.Node(deviceNode).SetLink(netem.Link{})
	var errs []sample
	for _, rate := range []float64{500e6, 100e6}[:b.Rounds(2, 1)] {
		if err := b.rig.Shape(ctx, rate); err != nil {
			b.Report.Notes = append(b.Report.Notes, "No run over token buckets: "+err.Error()+".")
			return nil //nolint:nilerr // noted: this machine has no namespaces
		}
		err := b.overBucket(ctx, rate, &errs)
		if end := b.rig.Unshape(ctx); err == nil {
			err = end
		}
		if err != nil {
			return err
		}
	}
	b.reportSamples("the same over token buckets in the kernel, from the trace of a remote run: median error", errs, median(paired.Goal{Max: 3}))
	b.reportSamples("over token buckets: greatest error", errs, quantile(1, 10))
	return nil
}

// overBucket appends to errs the error for each program, in %, over a link with the given rate in
// bit/s.
func (b *bench) overBucket(ctx context.Context, rate float64, errs *[]sample) error {
	link := overhead.Link{RTT: b.rtt, Up: rate * payload, Down: rate * payload, Burst: rig.BucketSize}
	for _, p := range b.cases {
		predicted, err := overhead.Predict(opener(p.remote), []overhead.Link{link}, b.options())
		if err != nil {
			return err
		}
		measured, err := b.several(ctx, p, b.over(), 2, &lateness{})
		if err != nil {
			return fmt.Errorf("%s over a token bucket: %w", p.Name, err)
		}
		e := deviation(predicted[0].Wall.Seconds(), measured.seconds)
		*errs = append(*errs, errorOf(e, measured.disturbed))
		fmt.Fprintf(os.Stderr, "  %-24s over a token bucket of %4.0f Mbit/s: measured %.3f s, predicted %.3f (%+.1f %%)\n",
			p.Name, rate/1e6, measured.seconds, predicted[0].Wall.Seconds(), e)
	}
	return nil
}

// payload is the share of the bytes on a link with frames of 9,000 bytes that a connection carries:
// a frame has 14 bytes for Ethernet, 20 for IP and 32 for TCP with time stamps.
const payload = float64(9000-20-32) / (9000 + 14)
