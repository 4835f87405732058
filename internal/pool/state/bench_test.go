package state_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
)

func reportP50(b *testing.B, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-us")
}

func BenchmarkAppend(b *testing.B) {
	for _, how := range []string{"embedded", "attached"} {
		for _, n := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/%d", how, n), func(b *testing.B) { benchmarkAppend(b, how, n) })
		}
	}
}

func benchmarkAppend(b *testing.B, how string, n int) {
	ctx := b.Context()
	node := alone(ctx, b)
	s := node.State
	if how == "attached" {
		s = attached(ctx, b, node)
	}
	l := openLog(ctx, b, s)
	data := make([][]byte, n)
	for i := range data {
		data[i] = make([]byte, 200)
	}
	var seq uint64
	var times []time.Duration
	i := 0
	for b.Loop() {
		if i%20 == 0 {
			seq = 0 // An execution has some twenty records.
		}
		start := time.Now()
		var err error
		if seq, err = l.Append(ctx, "t/app/"+strconv.Itoa(i/20), seq, data...); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(start))
		i++
	}
	reportP50(b, times)
}

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 10, 65, 500} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			ctx := b.Context()
			kv, err := alone(ctx, b).OpenKV(ctx, "outboard-t-a-n")
			if err != nil {
				b.Fatal(err)
			}
			c := state.Commit{Writer: "w"}
			i := 0
			for b.Loop() {
				c.Changes = c.Changes[:0]
				for range n {
					i++
					c.Changes = append(c.Changes, state.KVChange{Key: "request/" + strconv.Itoa(i), Value: []byte("done")})
				}
				c.Number++
				if err := kv.Commit(ctx, c); err != nil {
					b.Fatal(err)
				}
				if err := kv.Spread(ctx, c); err != nil {
					b.Fatal(err)
				}
				c.After = c.Last()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n)/1000, "us/change")
		})
	}
}
