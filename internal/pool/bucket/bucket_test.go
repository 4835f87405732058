package bucket_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard/internal/pool/bucket"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
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
	b := openBucket(ctx, t, statetest.Open(t))
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
	s := statetest.Open(t)
	b := openBucket(ctx, t, s)
	mustTxn(ctx, t, b, -1, put("a/b", "1"), put("c", "2"), put("d", "3"))
	mustTxn(ctx, t, b, -1, bucket.Op{Kind: bucket.Delete, Key: "c"}, put("d", "4"))
	kv := natsKV(ctx, t, s)
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
	if _, err := kv.Get(ctx, "c"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("a deleted key: %v", err)
	}
}

// NATS removes a key whose time is over, and an owner that opens the bucket later does not find it.
func TestExpireInNATS(t *testing.T) {
	ctx := testContext(t)
	s := statetest.Open(t)
	b := openBucket(ctx, t, s)
	mustTxn(ctx, t, b, -1, put("a", "1"), put("b", "1"))
	mustTxn(ctx, t, b, -1, bucket.Op{Kind: bucket.PutFor, Key: "a", Value: []byte("2"), TTL: bucket.MinTTL})
	e := wantValue(ctx, t, b, "a", "2")
	other := openBucket(ctx, t, s)
	if diff := cmp.Diff(wantValue(ctx, t, other, "a", "2"), e); diff != "" {
		t.Errorf("the other owner against the first:\n%s", diff)
	}
	kv := natsKV(ctx, t, s)
	for {
		_, err := kv.Get(ctx, "a")
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // the server has its own clock
	}
	for _, b := range []*bucket.Bucket{b, other, openBucket(ctx, t, s)} {
		wantValue(ctx, t, b, "a", "")
		wantValue(ctx, t, b, "b", "1")
		mustTxn(ctx, t, b, 1, bucket.Op{Kind: bucket.Missing, Key: "a"}, bucket.Op{Kind: bucket.Missing, Key: "b"})
	}
}

// lent is the socket on which a node lends its state.
type provider func() (net.Conn, error)

func (p provider) InProcessConn() (net.Conn, error) { return p() }

func natsKV(ctx context.Context, t *testing.T, s *state.State) jetstream.KeyValue {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(provider(statetest.Lend(t, s))), nats.CustomInboxPrefix("_INBOX.harbour"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(ctx, "outboard-default-enrollment-seats")
	if err != nil {
		t.Fatal(err)
	}
	return kv
}
