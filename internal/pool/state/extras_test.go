package state_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// extras is what a log and a bucket hold, with its numbers.
type extras struct {
	seq     map[string]uint64
	history map[string][]string
	number  uint64
	last    uint64
	values  map[string]state.Entry
	times   map[string]time.Time // of the keys' first records
}

// newExtras makes a log with a key that was purged, and a bucket with a deleted key.
func newExtras(ctx context.Context, t *testing.T, s *state.State) *extras {
	t.Helper()
	x := &extras{seq: map[string]uint64{}, history: map[string][]string{}, values: map[string]state.Entry{}}
	x.times = map[string]time.Time{}
	l := openLog(ctx, t, s)
	mustAppend(ctx, t, openShort(ctx, t, s), "expires", 0, "soon")
	mustAppend(ctx, t, l, "purged/1", 0, "gone")
	for range 3 {
		x.write(ctx, t, s)
	}
	if err := l.Purge(ctx, "purged/1"); err != nil {
		t.Fatal(err)
	}
	for key := range x.history {
		x.times[key] = firstTime(ctx, t, l, key)
	}
	return x
}

// openShort opens a log whose records expire before a pool has grown.
func openShort(ctx context.Context, t *testing.T, s *state.State) *state.Log {
	t.Helper()
	l, err := s.OpenLog(ctx, "short", state.LogOptions{MaxAge: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func firstTime(ctx context.Context, t *testing.T, l *state.Log, key string) time.Time {
	t.Helper()
	records, err := l.Read(ctx, key)
	if err != nil || len(records) == 0 {
		t.Fatal(len(records), err)
	}
	return records[0].Time
}

// expired appends to a history that has expired. A server removes old records after the first period
// since a move.
func (x *extras) expired(ctx context.Context, t *testing.T, s *state.State) {
	t.Helper()
	l := openShort(ctx, t, s)
	for {
		records, err := l.Read(ctx, "expires")
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal("the records do not expire")
		case <-time.After(10 * time.Millisecond):
		}
	}
	mustAppend(ctx, t, l, "expires", 0, "again")
}

func openKV(ctx context.Context, t testing.TB, s *state.State) *state.KV {
	t.Helper()
	kv, err := s.OpenKV(ctx, "outboard-t-a-test")
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// write adds to both, after the last number that is known.
func (x *extras) write(ctx context.Context, t *testing.T, s *state.State) {
	t.Helper()
	x.number++
	l := openLog(ctx, t, s)
	for i := range 20 {
		key, text := fmt.Sprintf("t/app/%d", i), fmt.Sprint(x.number)
		x.seq[key] = mustAppend(ctx, t, l, key, x.seq[key], text, text+" again")
		x.history[key] = append(x.history[key], text, text+" again")
	}
	c := state.Commit{Writer: "w", Number: x.number, After: x.last, Changes: []state.KVChange{
		{Key: "each", Value: fmt.Append(nil, x.number)},
		{Key: fmt.Sprint("only/", x.number), Value: []byte("x")},
		{Key: fmt.Sprint("only/", x.number-1), Deleted: true},
	}}
	kv := openKV(ctx, t, s)
	if err := kv.Commit(ctx, c); err != nil {
		t.Fatal(err)
	}
	if err := kv.Spread(ctx, c); err != nil {
		t.Fatal(err)
	}
	for i, change := range c.Changes {
		if change.Deleted {
			delete(x.values, change.Key)
			continue
		}
		x.values[change.Key] = state.Entry{Key: change.Key, Value: change.Value, Revision: c.Revision(i)}
	}
	x.last = c.Last()
}

// check reads both.
func (x *extras) check(ctx context.Context, t *testing.T, s *state.State) {
	t.Helper()
	l := openLog(ctx, t, s)
	for key, want := range x.history {
		if seq := wantLog(ctx, t, l, key, want...); seq != x.seq[key] {
			t.Errorf("%s ends at %d, want %d", key, seq, x.seq[key])
		}
		if got, want := firstTime(ctx, t, l, key), x.times[key]; !got.Equal(want) {
			t.Errorf("%s begins at %v, want %v", key, got, want)
		}
	}
	wantLog(ctx, t, l, "purged/1")
	last, values := contentOf(ctx, t, openKV(ctx, t, s))
	if last != x.last {
		t.Errorf("the bucket is at %d, want %d", last, x.last)
	}
	if diff := cmp.Diff(values, x.values, entryFields); diff != "" {
		t.Errorf("bucket: got against want:\n%s", diff)
	}
}

var entryFields = cmp.Comparer(func(a, b state.Entry) bool {
	return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && a.Revision == b.Revision
})

func contentOf(ctx context.Context, t *testing.T, kv *state.KV) (uint64, map[string]state.Entry) {
	t.Helper()
	values := map[string]state.Entry{}
	last, err := kv.Since(ctx, 0, func(e state.Entry) {
		values[e.Key] = e
		maps.DeleteFunc(values, func(_ string, e state.Entry) bool { return e.Deleted })
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return last, values
}
