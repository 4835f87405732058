package queue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/queue"
)

// rowsOfBytes returns a request with rows of so many bytes.
func rowsOfBytes(rows, width int) *queue.Request {
	return &queue.Request{Rows: rows, Inputs: []model.Tensor{
		{Name: "x", Type: model.Uint8, Shape: []int64{int64(rows), int64(width)}, Data: make([]byte, rows*width)},
		{Name: "y", Type: model.Uint8, Shape: []int64{int64(rows), 1}, Data: make([]byte, rows)},
	}}
}

// A request with many short rows, or with a long one, is not padded together with others by more
// zeros than the node has room for: a megabyte could become a terabyte.
func TestPaddingIsBounded(t *testing.T) {
	bytesType := func(width int) *queue.Request {
		r := rowsOfBytes(1, width)
		r.Inputs[0].Type, r.Inputs[0].Data = model.Bytes, make([]byte, 4*width)
		return r
	}
	for name, c := range map[string]struct {
		first, second *queue.Request
		rows          []int // of the batches
	}{
		"many rows":        {rowsOfBytes(1<<20, 0), rowsOfBytes(1, 1<<20), []int{1 << 20, 1}},
		"one long row":     {rowsOfBytes(1, 80<<20), rowsOfBytes(6, 1), []int{1, 6}},
		"texts":            {bytesType(1), bytesType(2), []int{1, 1}},
		"a little padding": {rowsOfBytes(2, 100), rowsOfBytes(6, 1), []int{8}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			q := queue.New(queue.Options{MaxBatch: 8, Pad: true}, g.execute)
			var all sync.WaitGroup
			do := func(r *queue.Request) {
				all.Go(func() {
					if _, _, err := q.Do(t.Context(), r); err != nil {
						t.Error(err)
					}
				})
			}
			do(numbers(0))
			<-g.entered
			do(c.first)
			await(t, q, 1)
			do(c.second)
			await(t, q, 2)
			g.leave <- nil
			for range c.rows {
				g.leave <- nil
			}
			all.Wait()
			var got []int
			for len(g.entered) > 0 {
				got = append(got, <-g.entered)
			}
			if !slices.Equal(got, c.rows) {
				t.Errorf("batches of %v rows, want %v", got, c.rows)
			}
		})
	}
}

// A request that the model refuses fails alone, not with all others of its batch.
func TestWrongRequestFailsAlone(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	q := queue.New(queue.Options{MaxBatch: 8}, func(_ context.Context, _ model.Sequence, in []queue.Input, _ []string) ([]model.Tensor, queue.Copies, error) {
		data := slices.Concat(in[0].Parts...)
		if len(data) == 4 && data[0] == 0 {
			close(entered)
			<-leave
		}
		if slices.Contains(data, 66) {
			return nil, queue.Copies{}, outboard.Errorf(outboard.Other, "", "index 66 is out of range")
		}
		return []model.Tensor{{Name: "y", Type: model.Int32, Shape: in[0].Shape, Data: data}}, queue.Copies{}, nil
	})
	var all sync.WaitGroup
	do := func(value int32, fails bool) {
		all.Go(func() {
			out, _, err := q.Do(t.Context(), numbers(value))
			if fails != (err != nil) || !fails && out[0].Data[0] != byte(value) {
				t.Errorf("%d: %v, %v", value, out, err)
			}
		})
	}
	do(0, false)
	<-entered
	for i, value := range []int32{1, 66, 2} {
		do(value, value == 66)
		await(t, q, i+1)
	}
	close(leave)
	all.Wait()
	if s := q.Stats(); s.Succeeded != 3 || s.Failed != 1 {
		t.Errorf("%d requests succeeded and %d failed", s.Succeeded, s.Failed)
	}
}

// of returns a request of a client.
func of(client string, priority int, value int32) *queue.Request {
	r := numbers(value)
	r.Client, r.Priority = client, priority
	return r
}

// A client with many requests, whatever their priority, delays one request of another client by one of
// its own, and does not take all places of the queue.
func TestClientsHaveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		var order []byte
		q := queue.New(queue.Options{Size: 16}, func(_ context.Context, _ model.Sequence, in []queue.Input, _ []string) ([]model.Tensor, queue.Copies, error) {
			order = append(order, in[0].Parts[0][0])
			<-leave
			time.Sleep(time.Second)
			return nil, queue.Copies{}, nil
		})
		var all sync.WaitGroup
		do := func(r *queue.Request) {
			all.Go(func() {
				if _, _, err := q.Do(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		do(of("flood", 0, 0))
		leave <- struct{}{}
		all.Wait() // a request takes one second
		do(of("flood", 0, 1))
		for i := range int32(14) {
			do(of("flood", int(i%2), 10+i))
		}
		deadline := time.Now().Add(8 * time.Second)
		if err := q.Refuse("flood", 1, time.Time{}); outboard.KindOf(err) != outboard.Exhausted {
			t.Errorf("the queue is full for the client that has filled it: %v", err)
		}
		if err := q.Refuse("victim", 1, deadline); err != nil {
			t.Errorf("another client: %v", err)
		}
		do(of("victim", 0, 2))
		do(of("victim", 1, 3))
		if err := q.Refuse("victim", 1, time.Time{}); outboard.KindOf(err) != outboard.Exhausted {
			t.Errorf("the queue is full: %v", err)
		}
		close(leave)
		all.Wait()
		if want := []byte{0, 1, 11, 3, 13, 2, 15, 17, 19, 21, 23, 10, 12, 14, 16, 18, 20, 22}; !slices.Equal(order, want) {
			t.Errorf("executed in the order %v, want %v", order, want)
		}
	})
}
