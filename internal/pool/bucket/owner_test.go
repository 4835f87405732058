package bucket

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
	"github.com/outboard-run/outboard/internal/quota"
)

// Names never make two buckets one.
func TestKVName(t *testing.T) {
	seen := map[string]Options{}
	words := []string{"a", "b", "a-b", "b-a", "a--b", "a_b"}
	for _, tenant := range words {
		for _, app := range words {
			for _, name := range words {
				o := Options{Tenant: tenant, App: app, Name: name}
				if other, ok := seen[o.kvName()]; ok {
					t.Errorf("%+v and %+v are both %s", o, other, o.kvName())
				}
				seen[o.kvName()] = o
			}
		}
	}
	for _, word := range []string{"", "-a", "a-", "a.b", "a>", "a b", "ä", "a/b"} {
		o := Options{State: &state.State{}, Tenant: "t", App: word, Name: "n"}
		if err := o.validate(); err == nil {
			t.Errorf("the name %q was let through", word)
		}
	}
}

// slowStore holds commits back, so that many transactions wait.
type slowStore struct {
	*fakeStore
	hold chan struct{}
}

func (s slowStore) Commit(ctx context.Context, c state.Commit) error {
	select {
	case <-s.hold:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.fakeStore.Commit(ctx, c)
}

func openSlow(t *testing.T) (*Bucket, slowStore) {
	t.Helper()
	s := slowStore{fakeStore: newFakeStore(), hold: make(chan struct{}, 1000)}
	opts := Options{}
	opts.setDefaults()
	b, err := open(t.Context(), s, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, s
}

// What waits while a commit is under way is committed at once.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := openSlow(t)
		var callers sync.WaitGroup
		call := func(key string) {
			callers.Go(func() {
				if failed, err := b.Txn(t.Context(), []Op{{Kind: PutIfMissing, Key: key}, {Kind: Add, Key: "n", Delta: 1}}); failed != -1 || err != nil {
					t.Errorf("%s: %d, %v", key, failed, err)
				}
			})
		}
		call("first")
		synctest.Wait() // It is being committed.
		for i := range 100 {
			call(fmt.Sprint(i))
		}
		synctest.Wait()
		s.hold <- struct{}{}
		s.hold <- struct{}{}
		callers.Wait()
		if s.commits != 2 {
			t.Errorf("%d commits, want 2", s.commits)
		}
		if got := s.content()["n"]; got != "101" {
			t.Errorf("n is %s, want 101", got)
		}
	})
}

// A commit is done when it is recorded. Its keys are written after that, and written
// again when that fails, though nobody asks for them.
func TestSpread(t *testing.T) {
	for name, f := range map[string]fault{"well": none, "after a failure": unspread, "after somebody else": foreign} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := laterStore{fakeStore: newFakeStore(), hold: make(chan struct{})}
				s.fault = func() fault {
					s.fault = func() fault { return none }
					return f
				}
				b := openFake(t, s)
				put := []Op{{Kind: Put, Key: "a", Value: []byte("1")}}
				if _, err := b.Txn(t.Context(), put); err != nil {
					t.Fatal(err)
				}
				if s.spread() {
					t.Fatal("the transaction waited for its keys")
				}
				if f == foreign { // Somebody else reads it meanwhile.
					other := openFake(t, s.fakeStore)
					defer other.Close()
					if e, err := other.Get(t.Context(), "a"); err != nil || string(e.Value) != "1" {
						t.Errorf("the other owner finds %q, %v", e.Value, err)
					}
				}
				close(s.hold)
				synctest.Wait()
				if !s.spread() {
					t.Error("the keys are not written")
				}
				if _, err := b.Txn(t.Context(), put); err != nil {
					t.Error(err)
				}
				b.Close()
			})
		})
	}
}

// An owner that could neither write the keys nor read on does so before its next
// answer.
func TestSpreadLater(t *testing.T) {
	s := newFakeStore()
	b := openFake(t, s)
	defer b.Close()
	s.fault = func() fault {
		s.fault, s.unreadable = func() fault { return none }, true
		return unspread
	}
	if _, err := b.Txn(t.Context(), []Op{{Kind: Put, Key: "a", Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	if e, err := b.Get(t.Context(), "a"); err != nil || string(e.Value) != "1" {
		t.Errorf("got %q, %v", e.Value, err)
	}
	if !s.spread() {
		t.Error("the keys are not written")
	}
}

// A bucket that is closed writes what it has promised.
func TestSpreadAtClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := laterStore{fakeStore: newFakeStore(), hold: make(chan struct{})}
		b := openFake(t, s)
		if _, err := b.Txn(t.Context(), []Op{{Kind: Put, Key: "a"}}); err != nil {
			t.Fatal(err)
		}
		var closing sync.WaitGroup
		closing.Go(func() { b.Close() })
		synctest.Wait()
		close(s.hold)
		closing.Wait()
		if !s.spread() {
			t.Error("the keys are not written")
		}
	})
}

// laterStore holds back what nobody waits for.
type laterStore struct {
	*fakeStore
	hold chan struct{}
}

func (s laterStore) Spread(ctx context.Context, c state.Commit) error {
	select {
	case <-s.hold:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.fakeStore.Spread(ctx, c)
}

// Large transactions are spread over commits that are not too large.
func TestLargeTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := openSlow(t)
		var callers sync.WaitGroup
		value := []byte(strings.Repeat("x", MaxTxn-10))
		for i := range 6 {
			callers.Go(func() {
				if _, err := b.Txn(t.Context(), []Op{{Kind: Put, Key: fmt.Sprint(i), Value: value}}); err != nil {
					t.Error(err)
				}
			})
		}
		for range 100 {
			s.hold <- struct{}{}
		}
		callers.Wait()
		if s.commits < 3 || len(s.content()) != 6 {
			t.Errorf("%d commits for %d keys, want 3 at least for 6", s.commits, len(s.content()))
		}
		if _, err := b.Txn(t.Context(), []Op{{Kind: Put, Key: "long-key", Value: append(value, value...)}}); err == nil {
			t.Error("a transaction that is too large was done")
		}
	})
}

// A caller that has given up before the owner decides has changed nothing.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := openSlow(t)
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := b.Txn(t.Context(), []Op{{Kind: Put, Key: "a"}}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Txn(ctx, []Op{{Kind: Put, Key: "b"}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the deadline", err)
		}
		s.hold <- struct{}{}
		s.hold <- struct{}{}
		first.Wait()
		if _, err := b.Get(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(s.content(), map[string]string{"a": ""}); diff != "" {
			t.Errorf("content: got against want:\n%s", diff)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := openSlow(t)
		var callers sync.WaitGroup
		for i := range 3 {
			callers.Go(func() {
				_, err := b.Txn(t.Context(), []Op{{Kind: Put, Key: fmt.Sprint(i)}})
				if !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, want ErrClosed", err)
				}
			})
		}
		synctest.Wait()
		b.Close()
		b.Close()
		callers.Wait()
		if _, err := b.Get(t.Context(), "a"); !errors.Is(err, ErrClosed) {
			t.Errorf("get on a closed bucket: %v, want ErrClosed", err)
		}
	})
}

func TestFull(t *testing.T) {
	s := newFakeStore()
	opts := Options{MaxBytes: 1900}
	opts.setDefaults()
	b, err := open(t.Context(), s, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	value := []byte(strings.Repeat("x", 900))
	ctx := t.Context()
	put := func(key string) error {
		_, err := b.Txn(ctx, []Op{{Kind: Put, Key: key, Value: value}})
		return err
	}
	if err := put("a"); err != nil {
		t.Fatal(err)
	}
	if err := put("b"); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("error %v, want Exhausted", err)
	}
	if _, err := b.Txn(ctx, []Op{{Kind: Delete, Key: "a"}}); err != nil {
		t.Errorf("delete in a full bucket: %v", err)
	}
	if err := put("b"); err != nil {
		t.Errorf("put after a deletion: %v", err)
	}
}

// Buckets of one tenant share a budget: what one has is missing for the others, until it is
// deleted or the bucket is closed.
func TestBudgetOfATenant(t *testing.T) {
	budget := quota.NewBudget(quota.Buckets, 1900)
	var buckets []*Bucket
	for range 2 {
		opts := Options{Budget: budget}
		opts.setDefaults()
		b, err := open(t.Context(), newFakeStore(), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() }) // it was closed, or is empty
		buckets = append(buckets, b)
	}
	value := []byte(strings.Repeat("x", 900))
	txn := func(b *Bucket, op Op) error {
		_, err := b.Txn(t.Context(), []Op{op})
		return err
	}
	put := Op{Kind: Put, Key: "a", Value: value}
	if err := txn(buckets[0], put); err != nil {
		t.Fatal(err)
	}
	if err := txn(buckets[1], put); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("the second bucket: %v, want Exhausted", err)
	}
	if err := txn(buckets[0], Op{Kind: Delete, Key: "a"}); err != nil {
		t.Error(err)
	}
	if err := txn(buckets[1], put); err != nil {
		t.Errorf("after a deletion in the first one: %v", err)
	}
	if err := buckets[1].Close(); err != nil || budget.Held() != 0 {
		t.Errorf("%d bytes are held for a closed bucket (%v)", budget.Held(), err)
	}
}

// An owner that has not looked for long reads everything: a tombstone may be gone.
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		b := openFake(t, s)
		defer b.Close()
		if _, err := b.Txn(t.Context(), []Op{{Kind: Put, Key: "a"}, {Kind: Put, Key: "b"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * tombstoneTrust)
		s.mu.Lock()
		delete(s.keys, "a") // Deleted by another owner, and forgotten.
		s.last++
		s.mu.Unlock()
		keys, err := b.Keys(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(keys, []string{"b"}); diff != "" {
			t.Errorf("keys: got against want:\n%s", diff)
		}
	})
}

// Very many small changes that are decided together fit into the record of one commit.
func TestManySmallChanges(t *testing.T) {
	kv, err := statetest.Open(t).OpenKV(t.Context(), "outboard-tea-shop-small")
	if err != nil {
		t.Fatal(err)
	}
	b := &Bucket{opts: Options{MaxBytes: 1 << 30}, view: view{keys: map[string]Entry{}}}
	var jobs []*job
	for i := range maxJobs {
		j := &job{}
		for k := range MaxOps {
			j.ops = append(j.ops, Op{Kind: PutFor, Key: strconv.FormatInt(int64(i*MaxOps+k), 36), TTL: time.Hour})
		}
		jobs = append(jobs, j)
	}
	for number := uint64(1); len(jobs) > 0; number++ {
		p, n := b.decide(jobs)
		for _, j := range jobs[:n] {
			if j.err != nil || j.failed != -1 {
				t.Fatal(j.failed, j.err)
			}
		}
		// Each commit of a writer of its own, since none is spread.
		c := state.Commit{Writer: "w" + strconv.FormatUint(number, 10), Number: 1, After: number - 1, Changes: p.changes}
		if err := kv.Commit(t.Context(), c); err != nil {
			t.Fatalf("%d transactions with %d changes: %v", n, len(p.changes), err)
		}
		jobs = jobs[n:]
	}
}
