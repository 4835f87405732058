package pool_test

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
)

// A request for a device whose node starts again waits for it, and in vain for a node that stays away.
func TestAcquireWhileNodeRestarts(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b, c := newTestNode(t, "a", 0), newTestNode(t, "b", 0), newTestNode(t, "c", 1)
	b.opts.NodeTTL = time.Minute
	a.up(ctx, nil)
	b.up(ctx, a)
	c.up(ctx, a)
	acquired := func() <-chan error {
		out := make(chan error, 1)
		go func() {
			_, err := b.Acquire(ctx, pool.Request{Selector: selector(t, "c/opencl/0")})
			out <- err
		}()
		return out
	}
	eventually(ctx, t, "the device", func() bool { return len(b.Devices()) == 1 })
	c.stop()
	eventually(ctx, t, "the device's node has left", func() bool { return len(b.Devices()) == 0 })
	if _, err := b.Acquire(ctx, pool.Request{Selector: selector(t, "c/opencl/0"), NoWait: true}); outboard.KindOf(err) != outboard.NoDevice {
		t.Errorf("without waiting: %v, want NoDevice", err)
	}
	waiting := acquired()
	c.up(ctx, nil)
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	eventually(ctx, t, "the first node knows the device", func() bool { return len(a.Devices()) == 1 })
	c.stop()
	eventually(ctx, t, "the device's node has left again", func() bool { return len(a.Devices()) == 0 })
	if _, err := a.Acquire(ctx, pool.Request{Selector: selector(t, "c/opencl/0")}); outboard.KindOf(err) != outboard.NoDevice {
		t.Errorf("a node that stays away: %v, want NoDevice", err)
	}
}

// A waiting request that the pool has too few devices for, since one has left, delays no other one.
func TestUnsatisfiableTicket(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b, c := newTestNode(t, "a", 1), newTestNode(t, "b", 0), newTestNode(t, "c", 1)
	b.opts.NodeTTL = time.Minute // so long it waits for c
	a.up(ctx, nil)
	b.up(ctx, a)
	c.up(ctx, a)
	eventually(ctx, t, "the devices", func() bool { return len(b.Devices()) == 2 && len(a.Devices()) == 2 })
	held := acquire(ctx, t, a, pool.Request{Selector: selector(t, "a/opencl/0")})
	queued := make(chan pool.Waiting, 100)
	go func() {
		_, _ = b.Acquire(ctx, pool.Request{Selector: selector(t, "api=opencl"), Count: 2, Progress: func(w pool.Waiting) { queued <- w }})
	}()
	<-queued
	refused := func() bool {
		_, err := a.Acquire(ctx, pool.Request{Selector: selector(t, "c/opencl/0"), NoWait: true})
		return outboard.KindOf(err) == outboard.Busy
	}
	eventually(ctx, t, "the first node knows of the waiting request", refused)
	c.stop()
	eventually(ctx, t, "the other device's node has left", func() bool { return len(a.Devices()) == 1 })
	if err := a.Release(ctx, held[0]); err != nil {
		t.Fatal(err)
	}
	acquire(ctx, t, a, pool.Request{Selector: selector(t, "a/opencl/0"), NoWait: true})
}
