package bucket_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboard-run/outboard/internal/pool/bucket"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

func openBucket(ctx context.Context, t testing.TB, s *state.State) *bucket.Bucket {
	t.Helper()
	b, err := bucket.Open(ctx, bucket.Options{State: s, Tenant: "default", App: "enrollment", Name: "seats"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// enrol takes a seat for a request, once.
func enrol(request, course string) []bucket.Op {
	return []bucket.Op{
		{Kind: bucket.PutIfMissing, Key: request, Value: []byte("enrolled")},
		{Kind: bucket.Add, Key: course, Delta: -1, Least: 0},
	}
}

// BenchmarkTxn is 64 callers that take seats of a hundred courses.
func BenchmarkTxn(b *testing.B) {
	for _, courses := range []int{1, 100} {
		b.Run(fmt.Sprintf("courses=%d", courses), func(b *testing.B) { benchmarkTxn(b, courses) })
	}
}

func benchmarkTxn(b *testing.B, courses int) {
	ctx := b.Context()
	bk := openBucket(ctx, b, statetest.Open(b))
	for i := range courses {
		if _, err := bk.Txn(ctx, []bucket.Op{{Kind: bucket.Put, Key: "seats/" + strconv.Itoa(i), Value: []byte("100000000")}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				id := strconv.FormatInt(n, 10)
				failed, err := bk.Txn(ctx, enrol("request/"+id, "seats/"+strconv.Itoa(int(n)%courses)))
				if failed != -1 || err != nil {
					b.Error(failed, err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
}

// BenchmarkTwoOwners is two processes with 32 callers each, and the smaller share
// of the two.
func BenchmarkTwoOwners(b *testing.B) {
	ctx := b.Context()
	node := statetest.Open(b)
	var owners []*bucket.Bucket
	for range 2 {
		s := statetest.Attach(ctx, b, "harbour", statetest.Lend(b, node))
		owners = append(owners, openBucket(ctx, b, s))
	}
	if _, err := owners[0].Txn(ctx, []bucket.Op{{Kind: bucket.Put, Key: "seats", Value: []byte("100000000")}}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	var next atomic.Int64
	var done [2]atomic.Int64
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if _, err := owners[i%2].Txn(ctx, enrol("request/"+strconv.FormatInt(n, 10), "seats")); err != nil {
					b.Error(err)
					return
				}
				done[i%2].Add(1)
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "txn/s")
	b.ReportMetric(100*float64(min(done[0].Load(), done[1].Load()))/float64(b.N), "smaller-%")
}
