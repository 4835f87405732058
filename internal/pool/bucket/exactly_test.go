package bucket_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/pool/bucket"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// Two processes write to one bucket while their connections to the node are cut
// again and again, with commits under way: each request takes one seat, and
// each call is counted once.
func TestExactlyOnceThroughCuts(t *testing.T) {
	ctx := testContext(t)
	node := statetest.Open(t)
	const seats, cuts = 200, 12
	mustTxn(ctx, t, openBucket(ctx, t, node), -1, put("seats", fmt.Sprint(seats)))
	var owners []*bucket.Bucket
	var ways []*statetest.Cutter
	for range 2 {
		way := statetest.NewCutter(statetest.Lend(t, node))
		s := statetest.Attach(ctx, t, "harbour", way.Dial)
		owners, ways = append(owners, openBucket(ctx, t, s)), append(ways, way)
	}
	var stop atomic.Bool
	var calls atomic.Int64
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				id := fmt.Sprint("r/", (i/2*16+caller)%(2*seats))
				if !enrolAndCount(ctx, t, owners[i%2], id) {
					return
				}
				calls.Add(1)
			}
		})
	}
	for i := range cuts {
		sleepWhileCalling(ctx, t, &calls)
		ways[i%2].Cut()
	}
	stop.Store(true)
	callers.Wait()
	for _, b := range owners {
		wantValue(ctx, t, b, "seats", "0")
		wantValue(ctx, t, b, "calls", fmt.Sprint(calls.Load()))
		enrolled, err := b.Keys(ctx, "r/")
		if err != nil || len(enrolled) != seats {
			t.Errorf("%d are enrolled in %d seats, error %v", len(enrolled), seats, err)
		}
	}
}

func enrolAndCount(ctx context.Context, t *testing.T, b *bucket.Bucket, request string) bool {
	_, err := b.Txn(ctx, enrol(request, "seats"))
	if err == nil {
		_, err = b.Txn(ctx, []bucket.Op{{Kind: bucket.Add, Key: "calls", Delta: 1}})
	}
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// sleepWhileCalling waits until some more calls are done.
func sleepWhileCalling(ctx context.Context, t *testing.T, calls *atomic.Int64) {
	for until := calls.Load() + 60; calls.Load() < until; {
		select {
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}
