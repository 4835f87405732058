package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/model"
)

// An instance that becomes free may find a request whose client has gone before the request's own
// goroutine does. It counts as canceled, and not as one whose deadline has passed.
func TestGoneClientsAreNotLate(t *testing.T) {
	q := New(Options{}, func(context.Context, model.Sequence, []Input, []string) ([]model.Tensor, Copies, error) {
		return nil, Copies{}, nil
	})
	q.idle = 0 // all instances are busy
	gone, leave := context.WithCancel(t.Context())
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	var items []*item
	for _, ctx := range []context.Context{gone, late} {
		it := &item{Request: &Request{}, ctx: ctx, arrived: time.Now(), done: make(chan struct{})}
		it.deadline, _ = ctx.Deadline()
		items = append(items, it)
		q.turns.Add(&it.turn)
		q.waiting.Push(it)
		q.rows++
	}
	leave()
	if batch := q.form(); batch != nil {
		t.Fatalf("a batch of %d requests that have ended", len(batch))
	}
	if s := q.Stats(); s.Cancelled != 1 || s.Expired != 1 || s.Waiting != 0 {
		t.Errorf("%d canceled, %d expired, %d wait", s.Cancelled, s.Expired, s.Waiting)
	}
	if !errors.Is(items[0].err, context.Canceled) || !errors.Is(items[1].err, ErrExpired) {
		t.Errorf("errors %v and %v", items[0].err, items[1].err)
	}
}
