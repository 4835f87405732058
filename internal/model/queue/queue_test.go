package queue_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/queue"
)

// numbers returns a request with rows of one Int32 each.
func numbers(values ...int32) *queue.Request {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, uint32(v))
	}
	return &queue.Request{
		Rows: len(values), Inputs: []model.Tensor{{Name: "x", Type: model.Int32, Shape: []int64{int64(len(values)), 1}, Data: data}},
	}
}

// gate is an executor that returns its inputs when the test lets it.
type gate struct {
	entered chan int // rows of a batch
	leave   chan error
}

func newGate() *gate { return &gate{entered: make(chan int, 64), leave: make(chan error, 64)} }

func (g *gate) execute(ctx context.Context, in []queue.Input, _ []string) ([]model.Tensor, error) {
	g.entered <- int(in[0].Shape[0])
	select {
	case err := <-g.leave:
		out := model.Tensor{Name: "y", Type: in[0].Type, Shape: in[0].Shape, Data: slices.Concat(in[0].Parts...)}
		return []model.Tensor{out}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// await waits until n requests wait.
func await(t *testing.T, q *queue.Queue, n int) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); q.Stats().Waiting != n; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d requests wait, want %d", q.Stats().Waiting, n)
		}
	}
}

// Requests that wait for a busy model are executed together, and each gets its own rows.
func TestBatch(t *testing.T) {
	g := newGate()
	q := queue.New(queue.Options{MaxBatch: 8}, g.execute)
	var all sync.WaitGroup
	do := func(values ...int32) {
		all.Go(func() {
			out, _, err := q.Do(t.Context(), numbers(values...))
			if err != nil || !cmp.Equal(out[0].Data, numbers(values...).Inputs[0].Data) {
				t.Errorf("%v: got %v, %v", values, out, err)
			}
		})
	}
	do(0)
	<-g.entered
	for i := range int32(5) {
		do(10*i, 10*i+1)
		await(t, q, int(i)+1)
	}
	g.leave <- nil
	for _, want := range []int{8, 2} {
		if rows := <-g.entered; rows != want {
			t.Errorf("a batch of %d rows, want %d", rows, want)
		}
		g.leave <- nil
	}
	all.Wait()
	if s := q.Stats(); s.Succeeded != 6 || s.Rows != 11 || s.Executions != 3 || s.Batches[8].Count != 1 {
		t.Errorf("%+v", s)
	}
}

// A full queue and a deadline that can't be met refuse at once, and every request is counted once.
func TestRefuse(t *testing.T) {
	g := newGate()
	q := queue.New(queue.Options{Size: 2}, g.execute)
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() { _, _, _ = q.Do(t.Context(), numbers(int32(i))) })
		if i == 0 {
			<-g.entered
		} else {
			await(t, q, i)
		}
	}
	if _, _, err := q.Do(t.Context(), numbers(9)); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("a full queue: %v", err)
	}
	time.Sleep(20 * time.Millisecond) // the service time that is measured
	for range 3 {
		g.leave <- nil
	}
	all.Wait()
	for range 2 {
		<-g.entered
	}
	all.Go(func() { _, _, _ = q.Do(t.Context(), numbers(1)) })
	<-g.entered
	ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
	defer cancel()
	if _, _, err := q.Do(ctx, numbers(2)); err == nil {
		t.Error("a deadline that can't be met was accepted")
	}
	g.leave <- nil
	all.Wait()
	s := q.Stats()
	if s.Succeeded != 4 || s.RefusedFull != 1 || s.Failed != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// A request that waits leaves the queue with its client; one in a batch does not end the others.
func TestCancel(t *testing.T) {
	g := newGate()
	q := queue.New(queue.Options{MaxBatch: 4}, g.execute)
	var all sync.WaitGroup
	all.Go(func() { _, _, _ = q.Do(t.Context(), numbers(0)) })
	<-g.entered
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() {
		if _, _, err := q.Do(ctx, numbers(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	await(t, q, 1)
	cancel()
	await(t, q, 0)
	both, leave := context.WithCancel(t.Context())
	all.Go(func() { _, _, _ = q.Do(both, numbers(2)) })
	await(t, q, 1)
	all.Go(func() {
		if _, _, err := q.Do(t.Context(), numbers(3)); err != nil {
			t.Errorf("the other request of the batch: %v", err)
		}
	})
	await(t, q, 2)
	g.leave <- nil
	if rows := <-g.entered; rows != 2 {
		t.Errorf("a batch of %d", rows)
	}
	leave()
	g.leave <- nil
	all.Wait()
	if s := q.Stats(); s.Cancelled == 0 {
		t.Errorf("%+v", s)
	}
}

// Higher priorities go first.
func TestPriority(t *testing.T) {
	g := newGate()
	var mu sync.Mutex
	var order []byte // first bytes of what is executed
	q := queue.New(queue.Options{}, func(ctx context.Context, in []queue.Input, names []string) ([]model.Tensor, error) {
		mu.Lock()
		for _, part := range in[0].Parts {
			order = append(order, part[0])
		}
		mu.Unlock()
		return g.execute(ctx, in, names)
	})
	var all sync.WaitGroup
	do := func(priority int, v int32) {
		all.Go(func() {
			r := numbers(v)
			r.Priority = priority
			_, _, _ = q.Do(t.Context(), r)
		})
	}
	do(0, 0)
	<-g.entered
	do(0, 1)
	await(t, q, 1)
	do(5, 2)
	await(t, q, 2)
	for range 3 {
		g.leave <- nil
	}
	all.Wait()
	if want := []byte{0, 2, 1}; !bytes.Equal(order, want) {
		t.Errorf("executed in the order %v, want %v", order, want)
	}
}

// Shapes that differ share a batch only with padding.
func TestPad(t *testing.T) {
	shape := func(width int) *queue.Request {
		return &queue.Request{Rows: 1, Inputs: []model.Tensor{{Name: "x", Type: model.Uint8, Shape: []int64{1, 2, int64(width)}, Data: slices.Repeat([]byte{7}, 2*width)}}}
	}
	g := newGate()
	q := queue.New(queue.Options{MaxBatch: 8, Pad: true}, g.execute)
	var all sync.WaitGroup
	all.Go(func() { _, _, _ = q.Do(t.Context(), shape(1)) })
	<-g.entered
	var got []byte
	all.Go(func() {
		out, _, err := q.Do(t.Context(), shape(2))
		if err != nil {
			t.Error(err)
			return
		}
		got = out[0].Data
	})
	await(t, q, 1)
	all.Go(func() { _, _, _ = q.Do(t.Context(), shape(3)) })
	await(t, q, 2)
	g.leave <- nil
	if rows := <-g.entered; rows != 2 {
		t.Errorf("a batch of %d", rows)
	}
	g.leave <- nil
	all.Wait()
	if want := []byte{7, 7, 0, 7, 7, 0}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Close waits for what was accepted and refuses what comes later.
func TestClose(t *testing.T) {
	g := newGate()
	q := queue.New(queue.Options{}, g.execute)
	var all sync.WaitGroup
	all.Go(func() {
		if _, _, err := q.Do(t.Context(), numbers(0)); err != nil {
			t.Error(err)
		}
	})
	<-g.entered
	closed := make(chan error)
	go func() { closed <- q.Close(t.Context()) }()
	g.leave <- nil
	if err := <-closed; err != nil {
		t.Error(err)
	}
	all.Wait()
	if _, _, err := q.Do(t.Context(), numbers(1)); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("got %v", err)
	}
}
