package queue_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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

func (g *gate) execute(ctx context.Context, _ model.Sequence, in []queue.Input, _ []string) ([]model.Tensor, queue.Copies, error) {
	g.entered <- int(in[0].Shape[0])
	select {
	case err := <-g.leave:
		out := model.Tensor{Name: "y", Type: in[0].Type, Shape: in[0].Shape, Data: slices.Concat(in[0].Parts...)}
		return []model.Tensor{out}, queue.Copies{}, err
	case <-ctx.Done():
		return nil, queue.Copies{}, ctx.Err()
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

// A request that may end the process is executed alone.
func TestAloneIsNotBatched(t *testing.T) {
	g := newGate()
	q := queue.New(queue.Options{MaxBatch: 8}, g.execute)
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			r := numbers(int32(i))
			r.Alone = i == 2
			if _, _, err := q.Do(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			<-g.entered
		} else {
			await(t, q, i)
		}
	}
	g.leave <- nil
	for _, want := range []int{3, 1} {
		if rows := <-g.entered; rows != want {
			t.Errorf("a batch of %d rows, want %d", rows, want)
		}
		g.leave <- nil
	}
	all.Wait()
}

// A request of a sequence is executed alone: its engine holds state for it.
func TestSequenceIsNotBatched(t *testing.T) {
	g := newGate()
	q := queue.New(queue.Options{MaxBatch: 8}, g.execute)
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
	for i := range 4 {
		r := numbers(int32(i))
		r.Sequence = model.Sequence{Number: int64(i / 2)} // 0 for the first two, which share a batch
		do(r)
		await(t, q, i+1)
	}
	g.leave <- nil
	defer all.Wait()
	defer close(g.leave)
	for _, want := range []int{2, 1, 1} {
		if rows := <-g.entered; rows != want {
			t.Fatalf("a batch of %d rows, want %d", rows, want)
		}
		g.leave <- nil
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
	q := queue.New(queue.Options{}, func(ctx context.Context, _ model.Sequence, in []queue.Input, names []string) ([]model.Tensor, queue.Copies, error) {
		mu.Lock()
		for _, part := range in[0].Parts {
			order = append(order, part[0])
		}
		mu.Unlock()
		return g.execute(ctx, model.Sequence{}, in, names)
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

// Requests of several clients are gathered while the engine is not busy, although no delay is
// configured; those of a sole client are executed at once.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const service = 200 * time.Microsecond
		q := queue.New(queue.Options{MaxBatch: 32}, func(_ context.Context, _ model.Sequence, in []queue.Input, _ []string) ([]model.Tensor, queue.Copies, error) {
			time.Sleep(service)
			return []model.Tensor{{Name: "y", Type: in[0].Type, Shape: in[0].Shape, Data: slices.Concat(in[0].Parts...)}}, queue.Copies{}, nil
		})
		do := func() {
			if _, _, err := q.Do(t.Context(), numbers(1)); err != nil {
				t.Error(err)
			}
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(do) // three of them wait for the first one, and share a batch
		}
		all.Wait()
		for _, pause := range []time.Duration{0, service / 2} {
			all.Go(func() {
				time.Sleep(pause)
				do()
			})
		}
		all.Wait()
		want := map[int]uint64{1: 1, 3: 1, 2: 1}
		for rows, b := range q.Stats().Batches {
			if b.Count != want[rows] {
				t.Errorf("%d batches of %d rows, want %d", b.Count, rows, want[rows])
			}
		}
		for range 8 {
			do() // the memory of shared batches fades
		}
		began := time.Now()
		for range 100 {
			do()
		}
		if took := time.Since(began); took != 100*service {
			t.Errorf("100 requests of a sole client took %v, want %v", took, 100*service)
		}
	})
}

// The times for copying that an executor reports are not part of the time for computing.
func TestCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = 10 * time.Millisecond
		copies := queue.Copies{In: 2 * time.Millisecond, Out: time.Millisecond}
		q := queue.New(queue.Options{}, func(_ context.Context, _ model.Sequence, in []queue.Input, _ []string) ([]model.Tensor, queue.Copies, error) {
			time.Sleep(took)
			return []model.Tensor{{Name: "y", Type: in[0].Type, Shape: in[0].Shape, Data: in[0].Parts[0]}}, copies, nil
		})
		_, times, err := q.Do(t.Context(), numbers(1))
		if err != nil {
			t.Fatal(err)
		}
		const compute = 7 * time.Millisecond
		if times.Compute != compute || times.Copies != copies || times.Total() != took {
			t.Errorf("the stages took %+v, want %v to compute", times, compute)
		}
		s := q.Stats()
		if s.Compute != compute || s.Copies != copies || s.Batches[1].Compute != compute || s.Batches[1].Copies != copies {
			t.Errorf("counted %+v", s)
		}
	})
}

// At three times the capacity, the requests that are accepted meet their deadlines although the
// engine becomes slower and faster: the others are refused when they arrive.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const service, deadline, requests = 4 * time.Millisecond, 250 * time.Millisecond, 6000
		random := rand.New(rand.NewPCG(1, 1))
		executed := 0
		q := queue.New(queue.Options{Size: 1000}, func(_ context.Context, _ model.Sequence, in []queue.Input, _ []string) ([]model.Tensor, queue.Copies, error) {
			pace := 0.6 + 0.8*random.Float64()
			if executed++; executed/100%2 == 1 {
				pace *= 1.3 // another program uses the machine, too
			}
			time.Sleep(time.Duration(pace * float64(service)))
			return []model.Tensor{{Name: "y", Type: in[0].Type, Shape: in[0].Shape, Data: in[0].Parts[0]}}, queue.Copies{}, nil
		})
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				began := time.Now()
				_, _, err := q.Do(ctx, numbers(1))
				if took := time.Since(began); outboard.KindOf(err) == outboard.Exhausted && took > 0 && took < deadline {
					t.Errorf("refused after %v: %v", took, err)
				}
			})
			time.Sleep(service / 3)
		}
		all.Wait()
		s := q.Stats()
		if late := s.Expired + s.Cancelled; late*100 > s.Succeeded || s.Succeeded+late+s.RefusedDeadline != requests {
			t.Errorf("%d requests met their deadline, %d did not, %d were refused", s.Succeeded, late, s.RefusedDeadline)
		}
		if least := uint64(requests / 3 * 8 / 10); s.Succeeded < least {
			t.Errorf("%d requests were executed, want at least %d: the engine waited", s.Succeeded, least)
		}
	})
}

// Refuse and Do refuse the same requests, and both count them.
func TestRefuseBeforeDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		q := queue.New(queue.Options{Size: 2}, g.execute)
		var running sync.WaitGroup
		run := func() { _, _, _ = q.Do(t.Context(), numbers(1)) }
		running.Go(run)
		time.Sleep(time.Second) // the measured time of an execution
		g.leave <- nil
		running.Wait()
		running.Go(run)
		synctest.Wait()
		if err := q.Refuse("", 1, time.Now().Add(time.Minute)); err != nil {
			t.Errorf("enough time: %v", err)
		}
		if err := q.Refuse("", 1, time.Now().Add(time.Second)); outboard.KindOf(err) != outboard.Exhausted {
			t.Errorf("too little time: %v", err)
		}
		running.Go(run)
		running.Go(run)
		synctest.Wait()
		if err := q.Refuse("", 0, time.Time{}); outboard.KindOf(err) != outboard.Exhausted {
			t.Errorf("a full queue: %v", err)
		}
		if s := q.Stats(); s.RefusedFull != 1 || s.RefusedDeadline != 1 {
			t.Errorf("%+v", s)
		}
		for range 3 {
			g.leave <- nil
		}
		running.Wait()
	})
}
