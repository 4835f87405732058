package state

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func testKV(ctx context.Context, t *testing.T) *KV {
	t.Helper()
	s, err := Open(ctx, Options{Dir: t.TempDir(), Name: "a", TLS: noRoutes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	k, err := s.OpenKV(ctx, "outboard-t-a-n")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func kvContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func commitAndSpread(ctx context.Context, t *testing.T, k *KV, c Commit) {
	t.Helper()
	must(t, k.Commit(ctx, c))
	must(t, k.Spread(ctx, c))
}

func wantContent(ctx context.Context, t *testing.T, k *KV, from uint64, want map[string]string) (last uint64) {
	t.Helper()
	got := map[string]string{}
	last, err := k.Since(ctx, from, func(e Entry) {
		got[e.Key] = string(e.Value) + "@" + strconv.FormatUint(e.Revision, 10)
		if e.Deleted {
			delete(got, e.Key)
		}
	})
	must(t, err)
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("content since %d: got against want:\n%s", from, diff)
	}
	return last
}

func changes(keysAndValues ...string) []KVChange {
	var out []KVChange
	for i := 0; i < len(keysAndValues); i += 2 {
		out = append(out, KVChange{
			Key: keysAndValues[i], Value: []byte(keysAndValues[i+1]), Deleted: keysAndValues[i+1] == "",
		})
	}
	return out
}

// A writer that dies in the midst of a commit has made all of it, with the
// revisions that it had said.
func TestCommitOfDeadWriter(t *testing.T) {
	for name, written := range map[string]int{"record only": 0, "one key": 1, "all but one": 2} {
		t.Run(name, func(t *testing.T) {
			ctx := kvContext(t)
			k := testKV(ctx, t)
			commitAndSpread(ctx, t, k, Commit{Writer: "w", Number: 1, Changes: changes("a", "0", "c", "0")})
			c := Commit{Writer: "w", Number: 2, After: 3, Changes: changes("a", "1", "b", "2", "c", "")}
			must(t, k.Commit(ctx, c))
			if written > 0 {
				must(t, k.write(ctx, c.Changes[:written], c.After+1))
			}
			last := wantContent(ctx, t, k, 3, map[string]string{"a": "1@5", "b": "2@6"})
			if last != c.Last() {
				t.Errorf("the bucket is at %d, want %d", last, c.Last())
			}
			commitAndSpread(ctx, t, k, Commit{Writer: "x", Number: 1, After: last, Changes: changes("d", "3")})
			wantContent(ctx, t, k, 0, map[string]string{"a": "1@5", "b": "2@6", "d": "3@9"})
		})
	}
}

// The rest of a commit is written when its keys' time is over, so that what they had
// before does not come back.
func TestCommitExpired(t *testing.T) {
	ctx := kvContext(t)
	k := testKV(ctx, t)
	commitAndSpread(ctx, t, k, Commit{Writer: "w", Number: 1, Changes: changes("a", "0", "b", "0")})
	c := Commit{Writer: "w", Number: 2, After: 3, Changes: changes("a", "1", "b", "1")}
	c.Changes[0].ExpiresMilli = time.Now().UnixMilli()
	c.Changes[1].ExpiresMilli = time.Now().Add(time.Hour).UnixMilli()
	must(t, k.Commit(ctx, c))
	wantContent(ctx, t, k, 0, map[string]string{"b": "1@6"})
	var last Entry
	_, err := k.Since(ctx, 5, func(e Entry) { last = e })
	must(t, err)
	if last.ExpiresMilli != c.Changes[1].ExpiresMilli {
		t.Errorf("b is gone at %d, want %d", last.ExpiresMilli, c.Changes[1].ExpiresMilli)
	}
}

// Every reader of a key sees its removal: Get, List and Watch.
func TestExpiryIsRead(t *testing.T) {
	ctx := kvContext(t)
	k := testKV(ctx, t)
	at := time.Now().Add(time.Hour).UnixMilli()
	c := Commit{Writer: "w", Number: 1}
	for i := range fewMessages + 1 {
		c.Changes = append(c.Changes, KVChange{Key: strconv.Itoa(i), ExpiresMilli: at})
	}
	commitAndSpread(ctx, t, k, c)
	seen := func(e Entry) {
		t.Helper()
		if e.ExpiresMilli != at {
			t.Fatalf("key %s is gone at %d, want %d", e.Key, e.ExpiresMilli, at)
		}
	}
	for _, from := range []uint64{0, c.Last() - 1} { // many, and one
		if last, err := k.Since(ctx, from, seen); err != nil || last != c.Last() {
			t.Fatalf("read to %d, %v", last, err)
		}
	}
	watching, stop := context.WithCancel(ctx)
	must(t, k.Watch(watching, c.Last()-1, func(e Entry) {
		seen(e)
		stop()
	}))
}

// Somebody who writes past the commits, as NATS's own tools do, does not keep the
// rest of one from being made.
func TestCommitInterrupted(t *testing.T) {
	ctx := kvContext(t)
	k := testKV(ctx, t)
	c := Commit{Writer: "w", Number: 1, Changes: changes("a", "1", "b", "2", "c", "3")}
	must(t, k.Commit(ctx, c))
	must(t, k.write(ctx, c.Changes[:1], 1))
	foreign := &nats.Msg{Subject: k.keys + "b", Data: []byte("foreign")}
	_, err := k.s.publishOnce(ctx, foreign)
	must(t, err)
	// b has been written after the commit: c alone is missing.
	wantContent(ctx, t, k, 0, map[string]string{"a": "1@2", "b": "foreign@3", "c": "3@4"})
}

// A writer that spreads its commit when somebody else has done so, and has gone on,
// changes nothing, and finds all when it reads on.
func TestSpreadTooLate(t *testing.T) {
	ctx := kvContext(t)
	k := testKV(ctx, t)
	c := Commit{Writer: "w", Number: 1, Changes: changes("a", "1", "b", "2")}
	must(t, k.Commit(ctx, c))
	last := wantContent(ctx, t, k, 0, map[string]string{"a": "1@2", "b": "2@3"})
	commitAndSpread(ctx, t, k, Commit{Writer: "x", Number: 1, After: last, Changes: changes("a", "3")})
	if err := k.Spread(ctx, c); !errors.Is(err, ErrConflict) {
		t.Errorf("error %v, want ErrConflict", err)
	}
	wantContent(ctx, t, k, c.After, map[string]string{"a": "3@5", "b": "2@3"})
}

// Two writers that know the same revision: one commits.
func TestCommitConflict(t *testing.T) {
	ctx := kvContext(t)
	k := testKV(ctx, t)
	first := Commit{Writer: "v", Number: 7, Changes: changes("a", "1")}
	commitAndSpread(ctx, t, k, first)
	second := Commit{Writer: "w", Number: 7, Changes: changes("a", "2")}
	if err := k.Commit(ctx, second); !errors.Is(err, ErrConflict) {
		t.Errorf("the second commit: %v, want ErrConflict", err)
	}
	// Later, each writer can tell what became of its own.
	commitAndSpread(ctx, t, k, Commit{Writer: "x", Number: 1, After: first.Last(), Changes: changes("a", "3")})
	if err := k.recorded(ctx, first); !errors.Is(err, ErrBehind) {
		t.Errorf("the first commit is made, and the writer is told %v, want ErrBehind", err)
	}
	if err := k.recorded(ctx, second); !errors.Is(err, ErrConflict) {
		t.Errorf("the second commit is not made, and the writer is told %v, want ErrConflict", err)
	}
}

// A bucket whose last messages have expired goes on with the next number.
func TestCommitAfterExpiry(t *testing.T) {
	ctx := kvContext(t)
	k := testKV(ctx, t)
	commitAndSpread(ctx, t, k, Commit{Writer: "w", Number: 1, Changes: changes("a", "1", "b", "2")})
	must(t, k.s.purge(ctx, k.stream, k.keys+"b", 0))
	last := wantContent(ctx, t, k, 0, map[string]string{"a": "1@2", "b": "2@4"})
	commitAndSpread(ctx, t, k, Commit{Writer: "w", Number: 2, After: last, Changes: changes("c", "3")})
	must(t, k.s.purge(ctx, k.stream, k.keys+"c", 0))
	must(t, k.s.purge(ctx, k.stream, k.marks+"w", 0))
	if last = wantContent(ctx, t, k, 0, map[string]string{"a": "1@2", "b": "2@4"}); last != 6 {
		t.Errorf("the bucket is at %d, want 6", last)
	}
	commitAndSpread(ctx, t, k, Commit{Writer: "w", Number: 3, After: last, Changes: changes("d", "4")})
}

// Tidy removes old writers' records, and never the bucket's last one.
func TestTidy(t *testing.T) {
	ctx := kvContext(t)
	k := testKV(ctx, t)
	after := uint64(0)
	for i, writer := range []string{"u", "v", "w"} {
		c := Commit{Writer: writer, Number: 1, After: after, Changes: changes("a", strconv.Itoa(i))}
		commitAndSpread(ctx, t, k, c)
		after = c.Last()
	}
	must(t, k.Tidy(ctx, time.Now().Add(-time.Hour)))
	wantMarks(ctx, t, k, 3)
	must(t, k.Tidy(ctx, time.Now().Add(time.Hour)))
	wantMarks(ctx, t, k, 1)
	wantContent(ctx, t, k, 0, map[string]string{"a": "2@6"})
}

func wantMarks(ctx context.Context, t *testing.T, k *KV, want int) {
	t.Helper()
	stream, err := k.s.js.Stream(ctx, k.stream)
	must(t, err)
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(k.marks+">"))
	must(t, err)
	if got := len(info.State.Subjects); got != want {
		t.Errorf("%d writers' records, want %d", got, want)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(record{id: "w.1", changes: changes("a", "1", "b", "")}.encode())
	f.Add(record{}.encode())
	f.Add(record{id: "w.2", changes: []KVChange{{Key: "a", Value: []byte("1"), ExpiresMilli: 1 << 41}}}.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord(data)
		if err != nil {
			return
		}
		again, err := decodeRecord(r.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(again, r, cmp.AllowUnexported(record{})); diff != "" {
			t.Errorf("again against once:\n%s", diff)
		}
	})
}

func FuzzCut(f *testing.F) {
	f.Add([]byte("abcdef"), "1,2,3")
	f.Add([]byte(""), "0")
	f.Add([]byte("a"), "")
	f.Add([]byte("a"), "2,18446744073709551615")
	f.Fuzz(func(t *testing.T, data []byte, sizes string) {
		parts, err := splitRecords(data, sizes)
		if err != nil {
			return
		}
		total := 0
		for _, p := range parts {
			total += len(p)
		}
		if len(parts) == 0 || total != len(data) {
			t.Errorf("%d bytes in %d parts, want %d", total, len(parts), len(data))
		}
	})
}

func FuzzKey(f *testing.F) {
	f.Add("tenant/app/id")
	f.Add("a b/*/>/%2E/größe")
	f.Fuzz(func(t *testing.T, key string) {
		tokens, ok := tokensOf(key)
		if !ok {
			return
		}
		if got := keyOf(tokens); got != key {
			t.Errorf("key %q came back as %q by %q", key, got, tokens)
		}
		if err := checkSubject("x."+tokens, false); err != nil {
			t.Errorf("key %q: %v", key, err)
		}
	})
}
