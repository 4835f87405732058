package state_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// A key is created once, changed and deleted only by those that know its revision, and can be
// created again after that.
func TestTable(t *testing.T) {
	s, ctx := statetest.Open(t), t.Context()
	first, err := s.Create(ctx, "apps/shop", []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, "apps/shop", []byte("2"), 0); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a key was created twice: %v", err)
	}
	second, err := s.Update(ctx, "apps/shop", []byte("2"), first, 0)
	if err != nil || second <= first {
		t.Fatalf("the revisions are %d and %d: %v", first, second, err)
	}
	if _, err := s.Update(ctx, "apps/shop", []byte("3"), first, 0); !errors.Is(err, state.ErrConflict) {
		t.Errorf("an update of an old revision: %v", err)
	}
	if _, err := s.Delete(ctx, "apps/shop", first); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a deletion of an old revision: %v", err)
	}
	if _, err := s.Delete(ctx, "apps/shop", second); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Get(ctx, "apps/shop"); !errors.Is(err, state.ErrNotFound) || !e.Deleted {
		t.Errorf("a deleted key is %+v: %v", e, err)
	}
	if _, err := s.Create(ctx, "apps/shop", []byte("4"), 0); err != nil {
		t.Errorf("a deleted key could not be created: %v", err)
	}
	for name, key := range map[string]string{"no words": "", "an empty word": "apps//shop", "an empty first word": "/shop"} {
		if _, err := s.Put(ctx, key, nil, 0); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("a key with %s: %v", name, err)
		}
	}
	if _, err := s.Put(ctx, "apps/large", make([]byte, state.MaxValue), 0); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("a value that is too large: %v", err)
	}
}

// The last revision below a prefix fences all keys there: a change that has not seen another one's
// is refused.
func TestUpdateWithin(t *testing.T) {
	s, ctx := statetest.Open(t), t.Context()
	if last, err := s.LastWithin(ctx, "leases/gpu/"); err != nil || last != 0 {
		t.Fatalf("an empty prefix has the revision %d: %v", last, err)
	}
	first, err := s.UpdateWithin(ctx, "leases/gpu/", "leases/gpu/harbour", []byte("a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.UpdateWithin(ctx, "leases/gpu/", "leases/gpu/dinghy", []byte("b"), 0); !errors.Is(err, state.ErrConflict) {
		t.Errorf("a change that has not seen the other key: %v", err)
	}
	if _, err := s.Put(ctx, "leases/cpu/harbour", []byte("c"), 0); err != nil {
		t.Fatal(err)
	}
	if last, err := s.LastWithin(ctx, "leases/gpu/"); err != nil || last != first {
		t.Errorf("the last revision is %d, want %d: %v", last, first, err)
	}
	second, err := s.UpdateWithin(ctx, "leases/gpu/", "leases/gpu/dinghy", []byte("b"), first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.UpdateWithin(ctx, "leases/gpu/", "leases/gpu/harbour", nil, second); err != nil {
		t.Fatal(err)
	}
	entries, err := s.Entries(ctx, "leases/gpu/")
	if err != nil || len(entries) != 1 || entries[0].Key != "leases/gpu/dinghy" {
		t.Errorf("after a deletion there are %+v: %v", entries, err)
	}
	if _, err := s.LastWithin(ctx, "leases//gpu/"); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("a prefix that is none: %v", err)
	}
}

// A follower has seen the whole table when it is returned, learns of each change, and survives
// records that it cannot read.
func TestFollow(t *testing.T) {
	s, ctx := statetest.Open(t), t.Context()
	for _, key := range []string{"apps/a", "apps/b"} {
		if _, err := s.Put(ctx, key, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]string{}
	f, err := state.Follow(ctx, s, nil, func(e state.Entry) (bool, error) {
		if string(e.Value) == "broken" {
			return false, errors.New("it is broken")
		}
		changed := seen[e.Key] != string(e.Value)
		seen[e.Key] = string(e.Value)
		return changed, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Lock()
	if seen["apps/a"] != "1" || seen["apps/b"] != "1" {
		t.Errorf("at first it has %v", seen)
	}
	f.Unlock()
	changed := f.Changed()
	for _, value := range []string{"broken", "2"} {
		if _, err := s.Put(ctx, "apps/a", []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	<-changed
	f.Lock()
	if seen["apps/a"] != "2" {
		t.Errorf("after the change it has %v", seen)
	}
	f.Unlock()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A request reaches a node that keeps the state, with the name of the node that asks.
func TestRequestsToKeepers(t *testing.T) {
	s := statetest.Open(t)
	stop, err := s.ServeRequests(func(node string, request []byte) []byte { return []byte(node + " asks " + string(request)) })
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.SendRequest(t.Context(), []byte("for a certificate"))
	if err != nil || string(answer) != "harbour asks for a certificate" {
		t.Errorf("the answer is %q: %v", answer, err)
	}
	stop()
	stop() // it may be called again
}

// A node that sends requests without end has others wait for none of them.
func TestRequestsOfANodeAreBounded(t *testing.T) {
	srv := runServer(t, nil)
	s := connect(t, srv, nil)
	release, handled := make(chan struct{}), make(chan string, 2000)
	var began atomic.Int32
	stop, err := s.ServeRequests(func(node string, _ []byte) []byte {
		began.Add(1)
		handled <- node
		<-release
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for range 1000 {
		if err := nc.PublishRequest("outboard.requests.bad", nc.NewInbox(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.PublishRequest("outboard.requests.good", nc.NewInbox(), nil); err != nil {
		t.Fatal(err)
	}
	for node := range handled {
		if node == "good" {
			break
		}
	}
	close(release)
	stop()
	if err := s.Close(); err != nil { // waits for the handlers
		t.Error(err)
	}
	if began.Load() > 65 {
		t.Errorf("%d requests were answered at a time", began.Load())
	}
}
