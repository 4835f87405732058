package job

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool"
)

// twoNodes is a pool of two nodes with a device each, which stays as it is.
type twoNodes struct{ Leases }

var errTooFew = outboard.Errorf(outboard.NoDevice, "acquire", "too few devices")

func (twoNodes) Changed() <-chan struct{} { return nil }

func (twoNodes) Node(id outboard.NodeID) (outboard.Node, bool) {
	return outboard.Node{Boot: "first"}, id != "gone"
}

func (twoNodes) Devices() (list []pool.DeviceState) {
	for _, n := range []outboard.NodeID{"east", "west"} {
		var d pool.DeviceState
		d.Node, d.ID = n, outboard.DeviceID(n+"/opencl/0")
		list = append(list, d)
	}
	return list
}

func (p twoNodes) Acquire(_ context.Context, r pool.Request) (leases []outboard.Lease, err error) {
	for _, d := range p.Devices() {
		if !slices.Contains(r.Exclude, d.ID) {
			leases = append(leases, outboard.Lease{Device: d.ID})
		}
	}
	if len(leases) < r.Count {
		return nil, errTooFew
	}
	return leases[:r.Count], nil
}

// A job needs both nodes, and has lost the connection to one that lives: the pool never notices a
// loss.
func TestLivingNodeIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &activeJob{manager: &Manager{opts: Options{Leases: twoNodes{}}}, excluded: make(map[outboard.NodeID]exclusion)}
		a.job = client.Job{Attempt: 1, Reason: errTooFew.Error(), Spec: client.JobSpec{Ranks: 2, MinRanks: 2, PerDevice: 1}}
		for _, want := range []time.Duration{firstExclusion, 2 * firstExclusion} {
			began := time.Now()
			a.exclude(&lostError{node: "west", boot: "first", err: errors.New("silent")}, began)
			leases, err := a.acquire(t.Context())
			if waited := time.Since(began); err != nil || len(leases) != 2 || waited != want {
				t.Fatalf("%v: %d leases after %v, want 2 after %v", err, len(leases), waited, want)
			}
		}
	})
}

func TestExclusionEndsWithTheBoot(t *testing.T) {
	a := &activeJob{manager: &Manager{opts: Options{Leases: twoNodes{}}}, excluded: make(map[outboard.NodeID]exclusion)}
	now := time.Unix(0, 0)
	for node, boot := range map[outboard.NodeID]string{"west": "an earlier one", "gone": "first"} {
		a.exclude(&lostError{node: node, boot: boot, err: errors.New("silent")}, now)
	}
	if ids, until := a.unusable(now); len(ids) > 0 || !until.IsZero() || len(a.excluded) > 0 {
		t.Errorf("%v is excluded until %v", ids, until)
	}
}

// busyPool is a pool of three nodes, of which another job has one for ever.
type busyPool struct{ twoNodes }

func (p busyPool) Devices() []pool.DeviceState {
	var d pool.DeviceState
	d.Node, d.ID = "north", "north/opencl/0"
	return append(p.twoNodes.Devices(), d)
}

func (p busyPool) Acquire(ctx context.Context, r pool.Request) ([]outboard.Lease, error) {
	leases, err := p.twoNodes.Acquire(ctx, r)
	switch {
	case err == nil:
		return leases, nil
	case r.NoWait:
		return nil, outboard.Errorf(outboard.Busy, "acquire", "all are leased")
	case r.Timeout > 0:
		time.Sleep(r.Timeout)
		return nil, context.DeadlineExceeded
	}
	<-ctx.Done() // The queue ends with the other job.
	return nil, ctx.Err()
}

// A job that waits in the queue, for devices of a busy node, uses a node that it had lost as soon as
// that is no longer excluded.
func TestQueueIsLeftForALivingNode(t *testing.T) {
	for name, spec := range map[string]client.JobSpec{
		"all ranks":   {Ranks: 2, MinRanks: 2, PerDevice: 1},
		"fewer ranks": {Ranks: 3, MinRanks: 2, PerDevice: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &activeJob{manager: &Manager{opts: Options{Leases: busyPool{}}}, excluded: make(map[outboard.NodeID]exclusion)}
				a.job = client.Job{Attempt: 1, Spec: spec}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				a.exclude(&lostError{node: "west", boot: "first", err: errors.New("silent")}, began)
				leases, err := a.acquire(ctx)
				if waited := time.Since(began); err != nil || len(leases) != 2 || waited != firstExclusion {
					t.Errorf("%v: %d leases after %v, want 2 after %v", err, len(leases), waited, firstExclusion)
				}
			})
		})
	}
}

// A job that may continue with fewer ranks does not wait in the queue for more.
func TestQueueIsForTheLeastRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waited pool.Request
		a := &activeJob{manager: &Manager{opts: Options{Leases: queueOnly{busyPool{}, &waited}}}, excluded: make(map[outboard.NodeID]exclusion)}
		a.job = client.Job{Attempt: 1, Spec: client.JobSpec{Ranks: 3, MinRanks: 2, PerDevice: 1}}
		if _, err := a.acquire(t.Context()); err != nil || waited.Count != 2 {
			t.Errorf("%v: it waited for %d devices, want 2", err, waited.Count)
		}
	})
}

// queueOnly has no free devices, and grants what waits.
type queueOnly struct {
	busyPool
	waited *pool.Request
}

func (p queueOnly) Acquire(_ context.Context, r pool.Request) ([]outboard.Lease, error) {
	if r.NoWait {
		return nil, outboard.Errorf(outboard.Busy, "acquire", "all are leased")
	}
	*p.waited = r
	return nil, nil
}
