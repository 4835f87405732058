package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
)

func TestAcquireExclusive(t *testing.T) {
	ctx := testContext(t)
	a := newTestNode(t, "a", 1)
	a.up(ctx, nil)
	lease := acquire(ctx, t, a, pool.Request{Program: "first"})[0]
	if !lease.Exclusive || lease.Memory != 8<<30 || lease.Fence == 0 {
		t.Errorf("got %+v, want an exclusive lease of 8 GiB with a fence", lease)
	}
	_, err := a.Acquire(ctx, pool.Request{NoWait: true})
	if outboard.KindOf(err) != outboard.Busy || !strings.Contains(err.Error(), "a/opencl/0 by node a (first)") {
		t.Errorf("got %v, want Busy that names the holder", err)
	}
	if err := a.Release(ctx, lease); err != nil {
		t.Fatal(err)
	}
	again := acquire(ctx, t, a, pool.Request{NoWait: true})[0]
	if again.Fence <= lease.Fence {
		t.Errorf("fence %d after %d, want a greater one", again.Fence, lease.Fence)
	}
	if _, err := a.Renew(ctx, lease); outboard.KindOf(err) != outboard.LeaseLost {
		t.Errorf("renew a released lease: %v, want LeaseLost", err)
	}
	renewed, err := a.Renew(ctx, again)
	if err != nil || renewed.Fence != again.Fence || !renewed.Expires.After(again.Expires) {
		t.Errorf("renew: %+v, %v; want the same fence and a later end", renewed, err)
	}
}

func TestAcquireShared(t *testing.T) {
	ctx := testContext(t)
	a := newTestNode(t, "a", 1)
	a.up(ctx, nil)
	acquire(ctx, t, a, pool.Request{Memory: 3 << 30})
	acquire(ctx, t, a, pool.Request{Memory: 5 << 30, Weight: 2})
	_, err := a.Acquire(ctx, pool.Request{Memory: 1, NoWait: true})
	if outboard.KindOf(err) != outboard.Busy {
		t.Errorf("a full device: %v, want Busy", err)
	}
	if d := a.Devices()[0]; d.Free != 0 || len(d.Grants) != 2 || d.Grants[1].Weight != 2 {
		t.Errorf("got %+v, want two grants and nothing free", d)
	}
}

func TestAcquireNoDevice(t *testing.T) {
	ctx := testContext(t)
	a := newTestNode(t, "a", 1)
	a.up(ctx, nil)
	for name, tt := range map[string]struct {
		req  pool.Request
		want string
	}{
		"selector": {pool.Request{Selector: selector(t, "vendor~nvidia")}, `no device meets "vendor~nvidia"`},
		"memory":   {pool.Request{Memory: 9 << 30}, "the largest, a/opencl/0, has 8GiB"},
		"count":    {pool.Request{Count: 2}, "only 1 that fit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.Acquire(ctx, tt.req)
			if outboard.KindOf(err) != outboard.NoDevice || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want NoDevice with %q", err, tt.want)
			}
		})
	}
}

func TestPlacementPrefersOwnNode(t *testing.T) {
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 2), newTestNode(t, "b", 1)
	a.up(ctx, nil)
	b.up(ctx, a)
	eventually(ctx, t, "b sees all devices", func() bool { return len(b.Devices()) == 3 })
	got := []outboard.DeviceID{
		acquire(ctx, t, b, pool.Request{Memory: 1 << 30})[0].Device, // its own
		acquire(ctx, t, b, pool.Request{Memory: 8 << 30})[0].Device, // the first with room
		acquire(ctx, t, b, pool.Request{})[0].Device,                // the only whole one
	}
	want := []outboard.DeviceID{"b/opencl/0", "a/opencl/0", "a/opencl/1"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}

// A request that waits, and one that does not, say how many devices are free and
// who leases the others.
func TestWaitingSaysForWhat(t *testing.T) {
	ctx := testContext(t)
	a := newTestNode(t, "a", 4)
	a.up(ctx, nil)
	acquire(ctx, t, a, pool.Request{Selector: selector(t, "a/opencl/1"), Program: "first"})
	acquire(ctx, t, a, pool.Request{Selector: selector(t, "a/opencl/2"), Memory: 1 << 30, Program: "shared"})
	const devices = "1 of 3 devices that fit is free, leased are a/opencl/1 by node a (first), a/opencl/2 by node a (shared)"
	req := pool.Request{Count: 3, Exclude: []outboard.DeviceID{"a/opencl/3"}}
	req.NoWait = true
	if _, err := a.Acquire(ctx, req); outboard.KindOf(err) != outboard.Busy || !strings.HasSuffix(err.Error(), devices) {
		t.Errorf("without a wait: %v", err)
	}
	waiting, cancel := context.WithCancel(ctx)
	var got pool.Waiting
	req.NoWait, req.Progress = false, func(w pool.Waiting) {
		got = w
		cancel()
	}
	if _, err := a.Acquire(waiting, req); waiting.Err() == nil {
		t.Fatal(err)
	}
	if want := "place 1 in the queue, and " + devices; got.String() != want {
		t.Errorf("it waits: %s\nwant %s", got, want)
	}
	// A part of the memory of a leased device is free.
	req.Memory, req.Count = 8<<30, 1
	acquire(ctx, t, a, pool.Request{Selector: selector(t, "a/opencl/0"), Memory: 2 << 30, Program: "part"})
	req.NoWait = true
	if _, err := a.Acquire(ctx, req); outboard.KindOf(err) != outboard.Busy || !strings.Contains(err.Error(), "all devices that fit are leased: a/opencl/0 by node a (part)") {
		t.Errorf("of a part: %v", err)
	}
}

// Waiters get their turn in the order in which they came.
func TestQueueOrder(t *testing.T) {
	ctx := testContext(t)
	a := newTestNode(t, "a", 2)
	a.up(ctx, nil)
	held := acquire(ctx, t, a, pool.Request{Count: 2})
	order := make(chan int, 5)
	var waiters sync.WaitGroup
	for i := range 5 {
		req := pool.Request{Selector: selector(t, "a/opencl/0"), Program: fmt.Sprint(i)}
		queued := make(chan pool.Waiting, 100)
		req.Progress = func(w pool.Waiting) { queued <- w }
		waiters.Go(func() {
			leases, err := a.Acquire(ctx, req)
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			if err := a.Release(ctx, leases[0]); err != nil {
				t.Error(err)
			}
		})
		w := <-queued
		if q := a.Queue(); len(q) != i+1 || q[i].Program != req.Program || q[i].Holder != "a" || q[i].Count != 1 || q[i].Since.IsZero() {
			t.Errorf("waiter %d: the queue is %+v", i, q)
		}
		if w.Position != i+1 || len(w.Busy) != 1 {
			t.Errorf("waiter %d: got %+v, want position %d and one busy device", i, w, i+1)
		}
	}
	// A later one passes on a device that the earlier ones can't use.
	if err := a.Release(ctx, held[1]); err != nil {
		t.Fatal(err)
	}
	acquire(ctx, t, a, pool.Request{Selector: selector(t, "a/opencl/1"), NoWait: true})
	// And does not on one that they can.
	if err := a.Release(ctx, held[0]); err != nil {
		t.Fatal(err)
	}
	last := acquire(ctx, t, a, pool.Request{Selector: selector(t, "a/opencl/0")})
	waiters.Wait()
	close(order)
	var got []int
	for i := range order {
		got = append(got, i)
	}
	if diff := cmp.Diff(got, []int{0, 1, 2, 3, 4}); diff != "" {
		t.Error(diff)
	}
	if err := a.Release(ctx, last[0]); err != nil {
		t.Fatal(err)
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	ctx := testContext(t)
	a := newTestNode(t, "a", 1)
	a.up(ctx, nil)
	acquire(ctx, t, a, pool.Request{})
	short, cancel := context.WithCancel(ctx)
	_, err := a.Acquire(short, pool.Request{Progress: func(pool.Waiting) { cancel() }})
	if outboard.KindOf(err) != outboard.Busy || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Busy and canceled", err)
	}
	// The ticket is gone: nobody waits for it.
	a.tickets(ctx, 0)
}

// tickets waits until so many tickets are in the table.
func (n *testNode) tickets(ctx context.Context, want int) {
	n.t.Helper()
	eventually(ctx, n.t, fmt.Sprintf("%d tickets", want), func() bool { return n.TicketCount() == want })
}

// Whatever several nodes ask for at once, no device is ever granted twice, and
// everything is free in the end.
func TestNeverOverGranted(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 2), newTestNode(t, "b", 1)
	a.up(ctx, nil)
	b.up(ctx, a)
	for _, n := range []*testNode{a, b} {
		eventually(ctx, t, "all devices", func() bool { return len(n.Devices()) == 3 })
	}
	rapid.Check(t, func(rt *rapid.T) {
		kinds := rapid.SliceOfN(rapid.IntRange(0, 3), 2, 8).Draw(rt, "requests")
		book := &ledger{held: make(map[outboard.DeviceID]outboard.Bytes)}
		var all sync.WaitGroup
		for i, kind := range kinds {
			n := []*testNode{a, b}[i%2]
			req := []pool.Request{{}, {Count: 2}, {Memory: 3 << 30}, {Memory: 5 << 30, Count: 3}}[kind]
			all.Go(func() {
				leases, err := n.Acquire(ctx, req)
				if err != nil {
					t.Error(err)
					return
				}
				book.take(t, leases)
				for _, l := range leases {
					if _, err := n.Renew(ctx, l); err != nil {
						t.Errorf("a lease that stands: %v", err)
					}
				}
				book.give(leases)
				for _, l := range leases {
					if err := n.Release(ctx, l); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for _, n := range []*testNode{a, b} {
			eventually(ctx, t, "everything is free", func() bool { return len(n.Leases()) == 0 })
		}
	})
}

// A ledger checks leases as their holders see them.
type ledger struct {
	mu   sync.Mutex
	held map[outboard.DeviceID]outboard.Bytes
}

func (l *ledger) take(t *testing.T, leases []outboard.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[outboard.DeviceID]bool)
	for _, lease := range leases {
		if l.held[lease.Device] += lease.Memory; l.held[lease.Device] > 8<<30 || seen[lease.Device] {
			t.Errorf("%s is granted twice", lease.Device)
		}
		seen[lease.Device] = true
	}
}

func (l *ledger) give(leases []outboard.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lease := range leases {
		l.held[lease.Device] -= lease.Memory
	}
}

// A lease that nobody renews ends, and who waits for its device gets it.
func TestLeaseExpires(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a := newTestNode(t, "a", 1)
	a.opts = pool.Options{NodeTTL: time.Hour, LeaseTTL: 3 * time.Second}
	a.up(ctx, nil)
	first := acquire(ctx, t, a, pool.Request{})[0]
	second := acquire(ctx, t, a, pool.Request{})[0]
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
	if err := a.Hold(ctx, first); outboard.KindOf(err) != outboard.LeaseLost {
		t.Errorf("hold an expired lease: %v, want LeaseLost", err)
	}
}

// A lease that is held stays beyond its time-to-live, which is long enough for renewals that a busy
// machine delays by seconds.
func TestHeldLeaseStays(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a := newTestNode(t, "a", 1)
	a.opts = pool.Options{NodeTTL: time.Hour, LeaseTTL: 15 * time.Second}
	a.up(ctx, nil)
	lease := acquire(ctx, t, a, pool.Request{})[0]
	hold, cancel := context.WithCancel(ctx)
	held := make(chan error, 1)
	go func() { held <- a.Hold(hold, lease) }()
	short, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	if _, err := a.Acquire(short, pool.Request{}); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("the held device: %v, want Busy", err)
	}
	cancel()
	if err := <-held; err != nil {
		t.Error(err)
	}
	// The request that waited may still stand in the queue for a moment.
	acquire(ctx, t, a, pool.Request{})
}
