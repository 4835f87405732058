package state

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

// A tally is a state whose tenants keep what the test says.
type tally struct {
	histories, buckets int64
	due                []func(context.Context)
}

// stores returns stores with a limit of 64 KiB. Measurements wait for settle.
func (y *tally) stores() *stores {
	return &stores{
		limit: 64 << 10, log: slog.New(slog.DiscardHandler), all: make(map[string]*tenantStore),
		spawn:          func(f func(context.Context)) { y.due = append(y.due, f) },
		measure:        func(context.Context, string, []string) (int64, error) { return y.histories, nil },
		measureBuckets: func(context.Context, []string) (int64, error) { return y.buckets, nil },
	}
}

// settle carries out the measurements that are due.
func (y *tally) settle(t *testing.T) {
	for _, f := range y.due {
		f(t.Context())
	}
	y.due = nil
}

// appended is a message that appends to an execution's history.
func appended(tenant, id string, size int, isFirst bool) guard.Message {
	after := "7"
	if isFirst {
		after = "0"
	}
	return guard.Message{
		Subject: logSubjectPrefix + "executions." + tenant + ".shop." + id, Body: make([]byte, size),
		Header: []byte("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: " + after + "\r\n\r\n"),
	}
}

// TestHistoriesAreBounded: a tenant that fills the store can begin nothing more, in its own
// process and in a node's name, while what runs can still record how it ends and other tenants
// notice nothing. What was removed is free again.
func TestHistoriesAreBounded(t *testing.T) {
	y := &tally{}
	all := y.stores()
	tea, coffee := permissions{node: "n", tenant: "tea", stores: all}, permissions{node: "n", tenant: "coffee", stores: all}
	node := permissions{node: "n", stores: all}
	y.settle(t)
	for i := range 1000 {
		if err := tea.Publish(appended("tea", fmt.Sprint(i), 1<<10, true)); err != nil {
			if outboard.KindOf(err) != outboard.Exhausted || !strings.Contains(err.Error(), "store=SIZE") || i < 50 {
				t.Fatalf("after %d executions: %v", i, err)
			}
			break
		}
		if i == 999 {
			t.Fatal("a tenant's histories have no limit")
		}
	}
	if err := node.Publish(appended("tea", "x", 1<<10, true)); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("in the name of a node: %v", err)
	}
	if err := tea.Publish(appended("tea", "1", 1<<10, false)); err != nil {
		t.Errorf("a running execution can't record its end: %v", err)
	}
	for i := 0; tea.Publish(appended("tea", "1", 1<<10, false)) == nil; i++ {
		if i > 10 {
			t.Fatal("running executions have no limit")
		}
	}
	if err := coffee.Publish(appended("coffee", "1", 1<<10, true)); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	y.settle(t) // It keeps nothing now.
	if err := tea.Publish(appended("tea", "y", 1<<10, true)); err != nil {
		t.Errorf("what was removed is still counted: %v", err)
	}
}

// TestBucketsAreBounded: what the server says of a bucket counts, and not what was written to it
// over and over. Keys can be deleted from a full one.
func TestBucketsAreBounded(t *testing.T) {
	y := &tally{buckets: 1 << 10}
	p := permissions{node: "n", tenant: "tea", stores: y.stores()}
	commit := func(c KVChange) error {
		r := record{id: "w.1", changes: []KVChange{c}}
		err := p.Publish(guard.Message{Subject: commitPrefix + "outboard-tea-shop-stock.w", Body: r.encode()})
		if err == nil {
			err = p.Publish(guard.Message{Subject: "$KV.outboard-tea-shop-stock.k", Body: c.Value})
		}
		y.settle(t)
		return err
	}
	for range 100 {
		if err := commit(KVChange{Key: "k", Value: make([]byte, 4<<10)}); err != nil {
			t.Fatal("a bucket that stays small:", err)
		}
	}
	y.buckets = 64 << 10
	for i := 0; commit(KVChange{Key: "k", Value: make([]byte, 4<<10)}) == nil; i++ {
		if i > 100 {
			t.Fatal("buckets have no limit")
		}
	}
	if err := commit(KVChange{Key: "k", Deleted: true}); err != nil {
		t.Errorf("a key can't be deleted: %v", err)
	}
	for i := 0; p.Publish(guard.Message{Subject: "$JS.API.STREAM.INFO.KV_outboard-tea-shop-" + fmt.Sprint(i)}) == nil; i++ {
		if i > maxStreams {
			t.Fatal("a tenant may have any number of buckets")
		}
	}
}

// TestCommitsAreCompleted: once the record of a commit was accepted, so are the messages of its keys.
// Otherwise each reader of the bucket would try in vain to complete the commit, and no key could be
// read or deleted. They are charged once, and only they.
func TestCommitsAreCompleted(t *testing.T) {
	y := &tally{}
	p := permissions{node: "n", tenant: "tea", stores: y.stores()}
	const bucket = "outboard-tea-shop-stock"
	key := func(name string, size int) error {
		return p.Publish(guard.Message{Subject: "$KV." + bucket + "." + name, Body: make([]byte, size)})
	}
	commits := 0
	for ; commits < 100; commits++ {
		var r record
		for i := range 4 {
			r.changes = append(r.changes, KVChange{Key: fmt.Sprint("k", i), Value: make([]byte, 3<<10)})
		}
		if err := p.Publish(guard.Message{Subject: commitPrefix + bucket + ".w", Body: r.encode()}); err != nil {
			break
		}
		for _, c := range r.changes {
			if err := key(c.Key, len(c.Value)); err != nil {
				t.Fatalf("commit %d can't be completed: %v", commits, err)
			}
		}
	}
	if commits == 0 || commits > 2 { // 24 KiB each
		t.Errorf("%d commits fit", commits)
	}
	for i := 0; key("k", 4<<10) == nil; i++ {
		if i > 10 {
			t.Fatal("messages without a record have no limit")
		}
	}
}

// TestRemovalsAreBounded: at the limit keys can be removed, but not without end: a message that removes
// a key is stored, too, with any body, and the record of a commit that only removes.
func TestRemovalsAreBounded(t *testing.T) {
	y := &tally{buckets: 64 << 10}
	p := permissions{node: "n", tenant: "tea", stores: y.stores()}
	const bucket = "outboard-tea-shop-stock"
	deletion := func(i, size int) error {
		return p.Publish(guard.Message{
			Subject: fmt.Sprintf("$KV.%s.k%d", bucket, i), Header: []byte("NATS/1.0\r\nKV-Operation: DEL\r\nNats-TTL: 3600\r\n\r\n"), Body: make([]byte, size),
		})
	}
	if err := deletion(0, 0); err != nil {
		t.Error(err)
	}
	y.settle(t)
	for i := range 50 {
		if err := deletion(i, 0); err != nil {
			t.Fatalf("a full bucket: key %d can't be removed: %v", i, err)
		}
	}
	for i := 0; deletion(i, 1<<10) == nil; i++ {
		if i > 100 {
			t.Fatal("messages that remove keys have no limit")
		}
	}
	y.settle(t)
	record := record{id: "w.1", changes: []KVChange{{Key: strings.Repeat("k", 1<<10), Deleted: true}}}
	for i := 0; p.Publish(guard.Message{Subject: fmt.Sprint(commitPrefix, bucket, ".w", i), Body: record.encode()}) == nil; i++ {
		if i > 100 {
			t.Fatal("records of commits that remove keys have no limit")
		}
	}
}

// TestTicksAreBounded: every watcher keeps each key of the table.
func TestTicksAreBounded(t *testing.T) {
	y := &tally{}
	p := permissions{node: "n", tenant: "tea", stores: y.stores()}
	if err := p.Publish(guard.Message{Subject: keyPrefix + "ticks.tea.1", Body: make([]byte, maxTick+1)}); err == nil {
		t.Error("a tick of any size")
	}
	for i := 0; p.Publish(guard.Message{Subject: keyPrefix + "ticks.tea." + fmt.Sprint(i)}) == nil; i++ {
		if i > 10 {
			t.Fatal("any number of ticks")
		}
	}
}

// TestTenantOfBucket: dashes in names, which the stream's name doubles, lead to no other tenant.
func TestTenantOfBucket(t *testing.T) {
	for stream, want := range map[string]string{
		"KV_outboard-tea-shop-stock": "tea", "KV_outboard-tea--house-shop-stock": "tea-house",
		"KV_outboard": "", "outboard_executions": "", "KV_outboard-tea": "tea",
	} {
		if got := tenantOfBucket(stream); got != want {
			t.Errorf("%s: got %q, want %q", stream, got, want)
		}
	}
}
