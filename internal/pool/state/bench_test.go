package state_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/outboard-run/outboard/internal/pool/state"
)

func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 10, 65, 500} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			ctx := b.Context()
			node := newTestNode(b, testCA(b), "a")
			node.open(ctx)
			kv, err := node.OpenKV(ctx, "outboard-t-a-n")
			if err != nil {
				b.Fatal(err)
			}
			var last uint64
			i := 0
			for b.Loop() {
				var changes []state.KVChange
				for range n {
					i++
					changes = append(changes, state.KVChange{Key: fmt.Sprintf("request/%d", i), Value: []byte("done")})
				}
				if last, err = kv.Commit(ctx, "w", uint64(i), last, changes); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/change")
		})
	}
}
