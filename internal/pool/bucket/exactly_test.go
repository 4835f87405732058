package bucket_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/pool/bucket"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// cutter is a way to a node's state whose connections can be cut at once, with
// what is under way on them.
type cutter struct {
	dial func() (net.Conn, error)

	mu    sync.Mutex
	conns []net.Conn
}

func (c *cutter) open() (net.Conn, error) {
	outer, err := c.dial()
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c.mu.Lock()
	c.conns = append(c.conns, outer, far)
	c.mu.Unlock()
	go func() {
		_, _ = io.Copy(outer, far)
		outer.Close()
	}()
	go func() {
		_, _ = io.Copy(far, outer)
		far.Close()
	}()
	return near, nil
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

// Two processes write to one bucket while their connections to the node are cut
// again and again, with commits under way: each request takes one seat, and
// each call is counted once.
func TestExactlyOnceThroughCuts(t *testing.T) {
	ctx := testContext(t)
	node := openState(ctx, t)
	const seats, requests = 200, 256
	mustTxn(ctx, t, openBucket(ctx, t, node), -1, put("seats", fmt.Sprint(seats)))
	var owners []*bucket.Bucket
	var ways []*cutter
	for range 2 {
		way := &cutter{dial: lent(t, node)}
		s, err := state.Attach(ctx, state.AttachOptions{Dial: way.open})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		owners, ways = append(owners, openBucket(ctx, t, s)), append(ways, way)
	}
	stop := make(chan struct{})
	var cutting, callers sync.WaitGroup
	cutting.Go(func() { cutOften(ways, stop) })
	for caller := range 16 {
		callers.Go(func() { enrolAll(ctx, t, owners, caller, requests) })
	}
	callers.Wait()
	close(stop)
	cutting.Wait()
	for _, b := range owners {
		wantValue(ctx, t, b, "seats", "0")
		wantValue(ctx, t, b, "calls", fmt.Sprint(2*requests))
		enrolled, err := b.Keys(ctx, "r/")
		if err != nil || len(enrolled) != seats {
			t.Errorf("%d are enrolled in %d seats, error %v", len(enrolled), seats, err)
		}
	}
}

// enrolAll asks for every sixteenth request, twice, and counts its calls.
func enrolAll(ctx context.Context, t *testing.T, owners []*bucket.Bucket, caller, n int) {
	for i := caller; i < n; i += 16 {
		for _, b := range owners {
			_, err := b.Txn(ctx, enrol(fmt.Sprint("r/", i), "seats"))
			if err == nil {
				_, err = b.Txn(ctx, []bucket.Op{{Kind: bucket.Add, Key: "calls", Delta: 1}})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}
}

func cutOften(ways []*cutter, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(150 * time.Millisecond):
			ways[i%len(ways)].cut()
		}
	}
}
