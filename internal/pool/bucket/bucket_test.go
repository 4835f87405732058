package bucket_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard/internal/pool/bucket"
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustTxn(ctx context.Context, t *testing.T, b *bucket.Bucket, want int, ops ...bucket.Op) {
	t.Helper()
	failed, err := b.Txn(ctx, ops)
	if err != nil {
		t.Fatal(err)
	}
	if failed != want {
		t.Errorf("transaction %v: condition %d failed, want %d", ops, failed, want)
	}
}

func wantValue(ctx context.Context, t *testing.T, b *bucket.Bucket, key, want string) bucket.Entry {
	t.Helper()
	e, err := b.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if string(e.Value) != want || (e.Revision != 0) != (want != "") {
		t.Errorf("%s is %q at %d, want %q", key, e.Value, e.Revision, want)
	}
	return e
}

func put(key, value string) bucket.Op {
	return bucket.Op{Kind: bucket.Put, Key: key, Value: []byte(value)}
}

func TestTxn(t *testing.T) {
	ctx := testContext(t)
	b := openBucket(ctx, t, openState(ctx, t))
	mustTxn(ctx, t, b, -1, put("seats", "2"), put("text", "abc"))
	mustTxn(ctx, t, b, -1, enrol("r1", "seats")...)
	mustTxn(ctx, t, b, 0, enrol("r1", "seats")...)
	mustTxn(ctx, t, b, -1, enrol("r2", "seats")...)
	mustTxn(ctx, t, b, 1, enrol("r3", "seats")...)
	wantValue(ctx, t, b, "r3", "")
	wantValue(ctx, t, b, "seats", "0")
	mustTxn(ctx, t, b, 1, put("x", "1"), bucket.Op{Kind: bucket.Add, Key: "text", Delta: 1, Least: bucket.NoLeast})
	mustTxn(ctx, t, b, -1, bucket.Op{Kind: bucket.Add, Key: "new", Delta: -5, Least: bucket.NoLeast})
	wantValue(ctx, t, b, "new", "-5")
	mustTxn(ctx, t, b, 0, bucket.Op{Kind: bucket.Missing, Key: "new"})
	mustTxn(ctx, t, b, -1, bucket.Op{Kind: bucket.Delete, Key: "new"}, bucket.Op{Kind: bucket.Missing, Key: "new"})
	e := wantValue(ctx, t, b, "text", "abc")
	mustTxn(ctx, t, b, 0, bucket.Op{Kind: bucket.Revision, Key: "text", Revision: e.Revision + 1})
	mustTxn(ctx, t, b, -1, bucket.Op{Kind: bucket.Revision, Key: "text", Revision: e.Revision}, put("text", "def"))
	mustTxn(ctx, t, b, 0, bucket.Op{Kind: bucket.Revision, Key: "text", Revision: e.Revision})
	mustTxn(ctx, t, b, -1, bucket.Op{Kind: bucket.Revision, Key: "nothing"})
	keys, err := b.Keys(ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keys, []string{"r1", "r2"}); diff != "" {
		t.Errorf("keys: got against want:\n%s", diff)
	}
}

// NATS's own client reads the bucket, with the revisions that the owner says.
func TestReadableByNATS(t *testing.T) {
	ctx := testContext(t)
	s := openState(ctx, t)
	b := openBucket(ctx, t, s)
	mustTxn(ctx, t, b, -1, put("a/b", "1"), put("c", "2"), put("d", "3"))
	mustTxn(ctx, t, b, -1, bucket.Op{Kind: bucket.Delete, Key: "c"}, put("d", "4"))
	kv := s.KeyValue(ctx, t)
	for _, key := range []string{"a/b", "d"} {
		e, err := b.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := kv.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(bucket.Entry{Value: got.Value(), Revision: got.Revision()}, e); diff != "" {
			t.Errorf("%s: NATS against the owner:\n%s", key, diff)
		}
	}
	if _, err := kv.Get(ctx, "c"); err != jetstream.ErrKeyDeleted && err != jetstream.ErrKeyNotFound {
		t.Errorf("a deleted key: %v", err)
	}
}
