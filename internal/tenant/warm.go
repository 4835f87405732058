package tenant

import (
	"context"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/workflow/planner"
)

// warm creates an instance of a function here.
func warm(ctx context.Context, apps *deployments, f planner.Target) error {
	v, err := apps.Acquire(ctx, f.App, f.Version)
	if err != nil {
		return err
	}
	defer release(v)
	if d := v.Functions[f.Function]; d != nil {
		return d.Warm()
	}
	return outboard.Errorf(outboard.NotFound, "", "app %s has no function %s", f.App, f.Function)
}

// release drops a reference to a version.
func release(v *version) { _ = v.Release() } // a function that ended badly has been logged by its calls

// trimInterval is how often the instances of functions without a call in that time are closed.
const trimInterval = 5 * time.Minute

// trim frees the memory of idle instances until ctx ends.
func trim(ctx context.Context, ready func(), apps *deployments) error {
	ready()
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for before := map[*deployed]uint64{}; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before = trimIdle(apps, before)
	}
}

// trimIdle closes the instances of functions whose number of calls equals that in before, and
// returns the numbers of all functions.
func trimIdle(apps *deployments, before map[*deployed]uint64) map[*deployed]uint64 {
	now := map[*deployed]uint64{}
	for _, v := range apps.Select("") {
		for _, f := range v.Functions {
			now[f] = f.meter.calls.Load()
			if calls, known := before[f]; known && calls == now[f] {
				f.Trim(0)
			}
		}
	}
	return now
}
