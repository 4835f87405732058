package shared_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// BenchmarkUnary is a round trip between two processes; 256 KiB are lent, filled
// by the caller, and echoed by copying.
func BenchmarkUnary(b *testing.B) {
	for _, what := range []string{"bench inline", "bench"} {
		path, _ := startPeer(b, what)
		for _, n := range []int{64, 4 << 10, 256 << 10, 1_000_000, 1_100_000} {
			for _, flight := range []int{1, 64} {
				b.Run(fmt.Sprintf("%s/%dB/%d", what, n, flight), func(b *testing.B) {
					c := dial(b, path, shared.Options{})
					defer c.Close()
					roundTrips(b, c, make([]byte, n), flight)
				})
			}
		}
	}
}

func roundTrips(b *testing.B, c *shared.Conn, data []byte, flight int) {
	b.ReportAllocs()
	h := &call.Head{Method: "/test.Echo/Unary"}
	ctx := context.Background()
	if flight == 1 {
		for b.Loop() {
			roundTrip(ctx, b, c, h, data)
		}
		return
	}
	work := make(chan bool, flight)
	var wg sync.WaitGroup
	for range flight {
		wg.Go(func() {
			for range work {
				for range 16 {
					roundTrip(ctx, b, c, h, data)
				}
			}
		})
	}
	for i := 0; b.Loop(); i++ {
		if i%16 == 0 {
			work <- true
		}
	}
	close(work)
	wg.Wait()
}

func roundTrip(ctx context.Context, b *testing.B, c *shared.Conn, h *call.Head, data []byte) {
	m, err := c.Lend(len(data))
	if err != nil {
		b.Error(err)
		return
	}
	copy(m.Data, data)
	m, _, err = c.Unary(ctx, h, m)
	if err != nil {
		b.Error(err)
		return
	}
	m.Free()
}
