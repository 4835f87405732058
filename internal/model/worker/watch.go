package worker

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/outboard-run/outboard"
)

// begin counts a call, and returns a function that ends it.
func (w *Worker) begin() (end func()) {
	w.calls.Add(1)
	return func() { w.calls.Add(-1) }
}

// pingDefault is the default of Options.PingInterval and Options.PingLimit.
const pingDefault = 10 * time.Second

// watch pings the process while it has calls, and kills it if it does not respond: the calls then fail,
// and the model can be loaded anew. A process that computes for long responds.
func (w *Worker) watch(interval, limit time.Duration) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-ticks.C:
		}
		if w.calls.Load() > 0 && !w.responds(limit) {
			w.Kill(outboard.Errorf(outboard.Unreachable, "", "the model's process did not respond for %v, and was killed", limit))
		}
	}
}

// responds pings the process and reports whether it answers in time, or has ended.
func (w *Worker) responds(limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := w.Ping(ctx)
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded)
}
