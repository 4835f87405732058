package state_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/pool/state"
)

func texts(records []state.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, string(r.Data))
	}
	return out
}

func alone(ctx context.Context, t testing.TB) *testNode {
	t.Helper()
	n := newTestNode(t, testCA(t), "a")
	n.open(ctx)
	return n
}

func openLog(ctx context.Context, t testing.TB, s *state.State) *state.Log {
	t.Helper()
	l, err := s.OpenLog(ctx, "executions", state.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAppend(ctx context.Context, t *testing.T, l *state.Log, key string, after uint64, data ...string) uint64 {
	t.Helper()
	var records [][]byte
	for _, d := range data {
		records = append(records, []byte(d))
	}
	seq, err := l.Append(ctx, key, after, records...)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func wantLog(ctx context.Context, t *testing.T, l *state.Log, key string, want ...string) uint64 {
	t.Helper()
	records, err := l.Read(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(texts(records), want); diff != "" {
		t.Errorf("history of %s: got against want:\n%s", key, diff)
	}
	if len(records) == 0 {
		return 0
	}
	return records[len(records)-1].Seq
}

func TestLog(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l := openLog(ctx, t, alone(ctx, t).State)
	a := mustAppend(ctx, t, l, "t/app/1", 0, "one")
	b := mustAppend(ctx, t, l, "t/app/2", 0, "x", "y", "z")
	a = mustAppend(ctx, t, l, "t/app/1", a, "two", "three")
	if _, err := l.Append(ctx, "t/app/1", a-1, []byte("no")); !errors.Is(err, state.ErrConflict) {
		t.Errorf("append after an earlier record: %v, want ErrConflict", err)
	}
	if _, err := l.Append(ctx, "t/app/2", 0, []byte("no"), []byte("no")); !errors.Is(err, state.ErrConflict) {
		t.Errorf("append to a history as if it were none: %v, want ErrConflict", err)
	}
	if got := wantLog(ctx, t, l, "t/app/1", "one", "two", "three"); got != a {
		t.Errorf("last sequence %d, append said %d", got, a)
	}
	if got := wantLog(ctx, t, l, "t/app/2", "x", "y", "z"); got != b {
		t.Errorf("last sequence %d, append said %d", got, b)
	}
	if err := l.Purge(ctx, "t/app/2"); err != nil {
		t.Fatal(err)
	}
	wantLog(ctx, t, l, "t/app/2")
	mustAppend(ctx, t, l, "t/app/2", 0, "again")
}

// wantScan wants a log to have one append of each key.
func wantScan(ctx context.Context, t *testing.T, l *state.Log, prefix string, want []string) {
	t.Helper()
	heads, err := l.Heads(ctx, prefix)
	if err != nil {
		t.Fatal(err)
	}
	var scanned []string
	err = l.Scan(ctx, prefix, func(records []state.Record) error {
		if len(records) != 1 || string(records[0].Data) != records[0].Key || heads[records[0].Key] != 1 {
			t.Errorf("scanned %+v of a head of %v", records, heads)
		}
		scanned = append(scanned, records[0].Key)
		return nil
	})
	slices.Sort(scanned)
	if diff := cmp.Diff(scanned, want); err != nil || diff != "" || len(heads) != len(want) {
		t.Errorf("scan %q: %v, got against want:\n%s", prefix, err, diff)
	}
}

// A scan tells of all appends in their order, over many pages, each with all of its records.
func TestLogScan(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := openLog(ctx, t, alone(ctx, t).State)
	const keys, appends = 30, 50 // 1,500 in all
	seqs := make([]uint64, keys)
	for i := range appends {
		for k := range keys {
			var err error
			seqs[k], err = l.Append(ctx, fmt.Sprintf("t/a/%d", k), seqs[k], fmt.Appendf(nil, "%d", 2*i), fmt.Appendf(nil, "%d", 2*i+1))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	mustAppend(ctx, t, l, "t/b/0", 0, "other")
	got, last := map[string]int{}, uint64(0)
	err := l.Scan(ctx, "t/a/", func(records []state.Record) error {
		for _, r := range records {
			if string(r.Data) != strconv.Itoa(got[r.Key]) || r.Seq < last {
				t.Fatalf("%s has %s at %d after %d, want its record %d", r.Key, r.Data, r.Seq, last, got[r.Key])
			}
			got[r.Key]++
			last = r.Seq
		}
		return nil
	})
	heads, failed := l.Heads(ctx, "t/a/")
	if err != nil || failed != nil || len(got) != keys || got["t/a/7"] != 2*appends || heads["t/a/7"] != appends {
		t.Errorf("%v, %v: scanned %v, heads %v", err, failed, got, heads)
	}
	stop := errors.New("stop")
	if err := l.Scan(ctx, "", func([]state.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestLogKeys(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l := openLog(ctx, t, alone(ctx, t).State)
	all := []string{"a/b.c/1", "a/b.c/2", "a/d/1", "a b/*/>", "größe", "a/%2E"}
	for _, key := range all {
		mustAppend(ctx, t, l, key, 0, key)
		wantLog(ctx, t, l, key, key)
	}
	for prefix, want := range map[string][]string{
		"":       all,
		"a/":     {"a/b.c/1", "a/b.c/2", "a/d/1", "a/%2E"},
		"a/b.c/": {"a/b.c/1", "a/b.c/2"},
		"a/b/":   nil,
	} {
		got, err := l.Keys(ctx, prefix)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("keys %q: got against want:\n%s", prefix, diff)
		}
		wantScan(ctx, t, l, prefix, want)
	}
	for _, key := range []string{"", "/", "a/", "/a", "a//b"} {
		if _, err := l.Append(ctx, key, 0, []byte("x")); err == nil {
			t.Errorf("append to key %q worked", key)
		}
	}
}
