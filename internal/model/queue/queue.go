// Package queue implements the bounded queue in front of a model for tensors: it orders requests by
// priority, refuses requests whose deadline can't be met, and forms the batches.
package queue

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/turns"
)

// Options configure a Queue.
type Options struct {
	// Size is the most waiting requests; 0 means 256.
	Size int
	// Instances is the number of batches that are executed concurrently; 0 means 1.
	Instances int
	// MaxBatch is the most rows of a batch; with 0 or 1 requests are executed one by one.
	MaxBatch int
	// Delay is how long a request may wait for others while the batch is not full. With 0 it waits
	// as long as a batch takes, at most maxGather, while recent batches had several rows, and
	// otherwise not at all.
	Delay time.Duration
	// Preferred are batch sizes at which the delay ends early.
	Preferred []int
	// LatencyGoal is the latency for which batches are kept small; 0 means none.
	LatencyGoal time.Duration
	// Pad lets requests of different shapes share a batch: the smaller shapes are filled with zeros
	// at the end of each dimension.
	Pad bool
}

func (o *Options) setDefaults() {
	if o.Size == 0 {
		o.Size = 256
	}
	o.Instances = max(o.Instances, 1)
	o.MaxBatch = max(o.MaxBatch, 1)
}

// An Input is a tensor of a batch, with the data of its requests in order.
type Input struct {
	Name  string
	Type  model.DataType
	Shape []int64
	Parts [][]byte
}

// An Executor computes the outputs of a batch, or of a single request of a sequence. It returns the
// parts of the time that copying took.
type Executor func(ctx context.Context, sequence model.Sequence, inputs []Input, outputs []string) ([]model.Tensor, Copies, error)

// Copies are the times for copying a batch's inputs to the engine, and its outputs back.
type Copies struct {
	In, Out time.Duration
}

// A Request is a client's request for outputs.
type Request struct {
	Inputs  []model.Tensor
	Outputs []string
	// Rows is the size of the first dimension of all inputs if the model has a batch dimension,
	// otherwise 0: the request is then executed alone.
	Rows int
	// Client names the client, "" for all clients without a name. The clients whose requests wait have
	// turns: one with many requests does not delay the first request of another one.
	Client string
	// Priority orders the requests of a client: higher first, equal priorities in the order of arrival.
	Priority int
	// Alone keeps the request out of batches.
	Alone bool
	// Sequence is set if the engine holds state between the requests of a sequence; such a request is
	// executed alone.
	Sequence model.Sequence
}

// Times are the durations of a request's stages. Compute does not include Copies.
type Times struct {
	Queue, Compute time.Duration
	Copies
	// Rows is the size of the batch that included the request.
	Rows int
}

// Total returns the sum of the stages.
func (t *Times) Total() time.Duration { return t.Queue + t.In + t.Compute + t.Out }

// A Queue orders and batches requests. It may be used by any number of goroutines.
type Queue struct {
	opts    Options
	execute Executor

	mu         sync.Mutex
	waiting    waiting
	rows       int // of the waiting requests
	turns      turns.Order
	idle       int           // idle instances
	recentRows int           // rows of recent batches
	running    int           // batches being executed
	arrived    chan struct{} // has a value after a request arrived, for instances that wait for more
	closed     bool
	estimate   estimate
	margin     margin
	stats      Stats
	drained    sync.Cond
}

// New returns a queue in front of an executor.
func New(opts Options, execute Executor) *Queue {
	opts.setDefaults()
	q := &Queue{opts: opts, execute: execute, idle: opts.Instances, arrived: make(chan struct{}, 1)}
	q.drained.L = &q.mu
	q.stats.Batches = map[int]BatchStats{}
	return q
}

// An item is a request that is waiting or being executed.
type item struct {
	*Request
	ctx      context.Context //nolint:containedctx // of the request
	key      string          // equal for requests that may share a batch
	arrived  time.Time
	deadline time.Time
	turn     turns.Turn
	index    int // in the heap, -1 after it left
	done     chan struct{}
	outputs  []model.Tensor
	times    Times
	err      error
}

// Errors of refused and expired requests.
var (
	errClosed = outboard.Errorf(outboard.Unreachable, "infer", "the model is being unloaded")
	// ErrExpired is the result of a request whose deadline passed while it waited.
	ErrExpired = outboard.Errorf(outboard.Exhausted, "infer", "the deadline passed while the request waited in the queue")
)

// Do executes a request. It fails at once, with the kind outboard.Exhausted, if the queue is full
// or the deadline of ctx can't be met.
func (q *Queue) Do(ctx context.Context, r *Request) ([]model.Tensor, Times, error) {
	it := &item{Request: r, ctx: ctx, arrived: time.Now(), done: make(chan struct{})}
	it.deadline, _ = ctx.Deadline()
	if q.opts.MaxBatch > 1 && r.Rows > 0 && r.Sequence.Number == 0 && !r.Alone {
		it.key = batchKey(r, q.opts.Pad)
	}
	direct, err := q.admit(it)
	switch {
	case err != nil:
		return nil, Times{}, err
	case direct:
		q.run([]*item{it})
		q.release()
		return it.outputs, it.times, it.err
	}
	select {
	case <-it.done:
	case <-ctx.Done():
		if q.withdraw(it) {
			return nil, it.times, it.err
		}
		<-it.done // its batch is cancelled, or continues for others
	}
	return it.outputs, it.times, it.err
}

// admit queues a request, or reports that the caller executes it itself.
func (q *Queue) admit(it *item) (direct bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return false, errClosed
	case it.ctx.Err() != nil:
		return false, context.Cause(it.ctx)
	}
	if err := q.refuse(it.Client, it.Rows, it.arrived, it.deadline); err != nil {
		return false, err
	}
	if q.idle > 0 && len(q.waiting) == 0 && (q.delay() == 0 || it.key == "" || it.Rows >= q.opts.MaxBatch) {
		q.idle--
		q.startBatch([]*item{it})
		return true, nil
	}
	it.turn.Client, it.turn.Priority = it.Client, it.Priority
	if q.turns.Add(&it.turn) {
		heap.Init(&q.waiting) // the turns of others have changed
	}
	heap.Push(&q.waiting, it)
	q.rows += max(it.Rows, 1)
	select {
	case q.arrived <- struct{}{}:
	default:
	}
	if q.idle > 0 {
		q.idle--
		go q.next()
	}
	return false, nil
}

// withdraw removes a waiting request. It reports false if a batch includes the request already.
func (q *Queue) withdraw(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.index < 0 {
		return false
	}
	it.err = context.Cause(it.ctx)
	q.dropEnded(it, it.isLate())
	return true
}

// dropEnded removes and counts a waiting request whose deadline has passed (late) or whose client has
// gone. mu must be held.
func (q *Queue) dropEnded(it *item, late bool) {
	q.remove(it)
	if late {
		q.stats.Expired++
		q.margin.missed(it.arrived)
	} else {
		q.stats.Cancelled++
	}
}

// isLate reports whether the deadline of a request has passed.
func (it *item) isLate() bool { return !it.deadline.IsZero() && !time.Now().Before(it.deadline) }

// remove removes a request from the heap. mu must be held.
func (q *Queue) remove(it *item) {
	heap.Remove(&q.waiting, it.index)
	q.turns.Remove(&it.turn)
	q.rows -= max(it.Rows, 1)
}

// next executes batches with one instance until no requests wait.
func (q *Queue) next() {
	for {
		batch := q.form()
		if batch == nil {
			return
		}
		q.run(batch)
	}
}

// release makes an instance idle, or makes it execute the waiting requests.
func (q *Queue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		go q.next()
		return
	}
	q.idle++
}

// form removes the next batch from the queue. If no requests wait, it marks the instance as idle
// and returns nil.
func (q *Queue) form() []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		q.expire()
		if len(q.waiting) == 0 {
			q.idle++
			q.drained.Broadcast()
			return nil
		}
		head := q.waiting[0]
		batch := q.collect(head)
		wait := q.delay() - time.Since(head.arrived)
		if wait <= 0 || q.closed || q.isReady(batch) {
			q.turns.Start(&head.turn)
			for _, it := range batch {
				q.remove(it)
			}
			q.startBatch(batch)
			return batch
		}
		q.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-q.arrived:
		}
		timer.Stop()
		q.mu.Lock()
	}
}

// maxGather bounds how long requests wait for others if the options set no delay.
const maxGather = time.Millisecond

// delay returns how long a request may wait for others. A batch costs a switch between processes
// and a call of the engine however small it is, so while several clients use an engine that is not
// busy, it gathers their requests for about as long as their computation takes. A sole client never
// waits. mu must be held.
func (q *Queue) delay() time.Duration {
	if q.opts.Delay > 0 || q.opts.MaxBatch == 1 || q.recentRows <= 1 {
		return q.opts.Delay
	}
	gather := min(q.estimate.service(q.recentRows), maxGather)
	if q.opts.LatencyGoal > 0 {
		gather = min(gather, q.opts.LatencyGoal/8)
	}
	return gather
}

// expire fails requests at the head whose deadline has passed or whose client has gone. mu must be held.
func (q *Queue) expire() {
	for len(q.waiting) > 0 {
		it := q.waiting[0]
		late := it.isLate()
		if it.ctx.Err() == nil && !late {
			return
		}
		if it.err = ErrExpired; !late {
			it.err = context.Cause(it.ctx)
		}
		q.dropEnded(it, late)
		close(it.done)
	}
}

// collect returns the head and the requests that fit into its batch. mu must be held.
func (q *Queue) collect(head *item) []*item {
	batch, rows := []*item{head}, head.Rows
	if head.key == "" {
		return batch
	}
	most := q.largest(head)
	padding := newPadding(head)
	for _, it := range q.inOrder() {
		if it == head || it.key != head.key || rows+it.Rows > most || q.opts.Pad && !padding.add(it) {
			continue
		}
		batch, rows = append(batch, it), rows+it.Rows
	}
	return batch
}

// largest returns the most rows of a batch with the given head: as many as the latency goal allows.
func (q *Queue) largest(head *item) int {
	most := q.opts.MaxBatch
	if q.opts.LatencyGoal > 0 {
		left := q.opts.LatencyGoal - time.Since(head.arrived)
		most = q.estimate.rowsWithin(left, most)
	}
	return max(most, head.Rows)
}

// isReady reports whether a batch needs no more requests: it is full or has a preferred size.
func (q *Queue) isReady(batch []*item) bool {
	rows := rowsOf(batch)
	return batch[0].key == "" || rows >= q.largest(batch[0]) || slices.Contains(q.opts.Preferred, rows)
}

func rowsOf(batch []*item) int {
	rows := 0
	for _, it := range batch {
		rows += it.Rows
	}
	return rows
}

// inOrder returns the waiting requests in the order of their execution. mu must be held.
func (q *Queue) inOrder() []*item {
	list := slices.Clone(q.waiting)
	slices.SortFunc(list, compareItems)
	return list
}

// startBatch records that a batch is about to be executed. mu must be held.
func (q *Queue) startBatch(batch []*item) {
	q.running++
	q.recentRows = max(rowsOf(batch), q.recentRows/2)
	now := time.Now()
	for _, it := range batch {
		it.index = -1
		it.times.Queue = now.Sub(it.arrived)
	}
}

// run executes a batch and delivers its results.
func (q *Queue) run(batch []*item) {
	began := time.Now()
	ctx, stop := joinContexts(batch)
	rows := max(rowsOf(batch), 1)
	copies, err := q.runBatch(ctx, batch)
	switch {
	case err != nil && len(batch) > 1 && mayBeOfOne(ctx, err):
		copies = q.runEach(batch)
	case err != nil:
		for _, it := range batch {
			it.fail(err)
		}
	}
	stop()
	took := time.Since(began)
	q.mu.Lock()
	q.running--
	q.record(batch, rows, took, copies)
	q.drained.Broadcast()
	q.mu.Unlock()
	for _, it := range batch {
		it.times.Compute, it.times.Copies, it.times.Rows = took-copies.In-copies.Out, copies, rows
		close(it.done)
	}
}

// fail sets the error of a request, which is that of its context once that has ended.
func (it *item) fail(err error) {
	it.err, it.outputs = err, nil
	if it.ctx.Err() != nil {
		it.err = context.Cause(it.ctx)
	}
}

// errBatching is the kind of a model's error that concerns all batches.
type errBatching struct{ error }

func (e errBatching) Unwrap() error { return e.error }

// mayBeOfOne reports whether the error of a batch may be the fault of one of its requests, such as an
// index that the model does not have.
func mayBeOfOne(ctx context.Context, err error) bool {
	if _, ok := errors.AsType[errBatching](err); ok || ctx.Err() != nil {
		return false
	}
	kind := outboard.KindOf(err)
	return kind == outboard.Invalid || kind == outboard.Other
}

// runEach executes the requests of a batch that failed one by one: a wrong request fails alone.
func (q *Queue) runEach(batch []*item) (sum Copies) {
	for _, it := range batch {
		it.outputs = nil
		if it.ctx.Err() != nil {
			it.fail(it.ctx.Err())
			continue
		}
		copies, err := q.runBatch(it.ctx, []*item{it})
		sum.add(copies)
		if err != nil {
			it.fail(err)
		}
	}
	return sum
}

// runBatch executes a batch and sets the outputs of its requests.
func (q *Queue) runBatch(ctx context.Context, batch []*item) (Copies, error) {
	inputs, err := joinInputs(batch)
	if err != nil {
		return Copies{}, err
	}
	outputs, copies, err := q.execute(ctx, batch[0].Sequence, inputs, batch[0].Outputs)
	if err != nil {
		return copies, err
	}
	if err := splitOutputs(batch, outputs); err != nil {
		return copies, errBatching{err}
	}
	return copies, nil
}

// joinContexts returns a context that ends when the contexts of all requests have ended.
func joinContexts(batch []*item) (context.Context, func()) {
	if len(batch) == 1 {
		return batch[0].ctx, func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].ctx))
	var mu sync.Mutex
	left := len(batch)
	stops := make([]func() bool, len(batch))
	for i, it := range batch {
		stops[i] = context.AfterFunc(it.ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// Close refuses new requests, and waits until the accepted ones have been executed or ctx ends.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	select {
	case q.arrived <- struct{}{}:
	default:
	}
	stop := context.AfterFunc(ctx, q.drained.Broadcast)
	defer stop()
	for (q.running > 0 || len(q.waiting) > 0) && ctx.Err() == nil {
		q.drained.Wait()
	}
	if q.running > 0 || len(q.waiting) > 0 {
		return context.Cause(ctx)
	}
	return nil
}

// waiting is a heap of requests, with the next one first.
type waiting []*item

func compareItems(a, b *item) int { return a.turn.Compare(&b.turn) }

// Len implements heap.Interface.
func (w waiting) Len() int { return len(w) }

// Less implements heap.Interface.
func (w waiting) Less(i, j int) bool { return compareItems(w[i], w[j]) < 0 }

// Swap implements heap.Interface.
func (w waiting) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

// Push implements heap.Interface.
func (w *waiting) Push(x any) {
	it := x.(*item) //nolint:errcheck // only items are pushed
	it.index = len(*w)
	*w = append(*w, it)
}

// Pop implements heap.Interface.
func (w *waiting) Pop() any {
	last := len(*w) - 1
	it := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	it.index = -1
	return it
}
