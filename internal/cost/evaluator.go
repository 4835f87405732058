package cost

import (
	"errors"
	"runtime"
	"slices"
)

// A Point is a moment that tasks depend on: the completion of the tasks that named it in Done.
// The zero Point is time 0.
type Point int32

// A Task is one piece of work on a resource.
type Task struct {
	// On is the resource that serves the task.
	On Resource
	// After are the points that the task waits for; the zero Point waits for nothing.
	After [2]Point
	// Cost is how long the resource is occupied in every setting, before its slowdown.
	Cost Time
	// Units are served at the resource's rate, which differs between settings.
	Units int64
	// Done, if not the zero Point, is set to the completion of the task.
	Done Point
}

// ErrTooLong is returned when a result could exceed the range of Time.
var ErrTooLong = errors.New("cost: the tasks take longer than 50 days in the slowest setting")

// Evaluator computes the completion of tasks in many settings. Its methods are called by one
// goroutine.
type Evaluator struct {
	lanes     int
	resources []profile
	free      []Point // released points, to be reused
	slots     int
	batch     *batch
	workers   []*worker
	// bound is an upper bound on the times in all lanes, in picoseconds.
	bound   float64
	err     error
	observe func(t Task, begin, end Time)
}

// New returns an evaluator for that many settings.
func New(lanes int) *Evaluator {
	e := &Evaluator{lanes: lanes, slots: 2, resources: make([]profile, 1)}
	e.batch = newBatch()
	count := min(runtime.GOMAXPROCS(0), (lanes+laneBlock-1)/laneBlock)
	blocks := (lanes + laneBlock - 1) / laneBlock
	for i := range count {
		from, to := blocks*i/count, blocks*(i+1)/count
		e.workers = append(e.workers, newWorker(to-from, from*laneBlock))
	}
	if count > 1 {
		for _, w := range e.workers {
			w.start()
		}
	}
	return e
}

// Lanes returns the number of settings.
func (e *Evaluator) Lanes() int { return e.lanes }

// Resource adds a serial resource with the given behaviour in each setting.
func (e *Evaluator) Resource(p Profile) (Resource, error) {
	made, err := p.compile(e.lanes)
	if err != nil {
		return 0, err
	}
	e.flush()
	made.slot = e.newSlot()
	e.resources = append(e.resources, made)
	for _, w := range e.workers {
		w.addProfile(&made)
	}
	return Resource(len(e.resources) - 1), nil
}

// Point returns a new point, at time 0.
func (e *Evaluator) Point() Point {
	if n := len(e.free); n > 0 {
		p := e.free[n-1]
		e.free = e.free[:n-1]
		e.push(op{kind: opClear, done: int32(p)})
		return p
	}
	return e.newSlot()
}

func (e *Evaluator) newSlot() Point {
	e.slots++
	return Point(e.slots - 1)
}

// Release returns a point for reuse. No later task may name it.
func (e *Evaluator) Release(p Point) {
	if p != 0 {
		e.free = append(e.free, p)
	}
}

// Observe makes Add evaluate each task at once and call f with the time for which it occupies its
// resource in the first setting. That is slow; a nil f ends the observation.
func (e *Evaluator) Observe(f func(t Task, begin, end Time)) { e.observe = f }

// Add adds a task.
func (e *Evaluator) Add(t Task) {
	e.add(t)
	if e.observe == nil || len(e.workers) == 0 {
		return
	}
	p := &e.workers[0].blocks[0].profiles[t.On]
	end, _ := e.At(e.Free(t.On), 0) // an error stays until Times
	busy := float64(t.Cost)*float64(p.slowdown[0])/(1<<slowdownBits) + float64(t.Units)*float64(p.perUnit[0])/(1<<perUnitBits)
	e.observe(t, max(0, end-Time(busy)), end)
}

func (e *Evaluator) add(t Task) {
	r := &e.resources[t.On]
	e.bound += float64(t.Cost)*r.maxSlowdown + float64(t.Units)*r.maxPerUnit + r.maxLatency
	if t.Cost < 0 || t.Units < 0 || e.bound > maxTime {
		e.err = ErrTooLong
		return
	}
	if t.After[1] != 0 {
		e.push(op{kind: opRaise, done: int32(r.slot), after: int32(t.After[1])})
	}
	after := int32(t.After[0])
	for t.Cost > r.costPart || t.Units > r.unitPart {
		// Serving a part first leaves the resource in the same state.
		part := op{kind: opServe, on: int32(t.On), after: after, done: sinkSlot, cost: int64(min(t.Cost, r.costPart)), units: min(t.Units, r.unitPart)}
		e.push(part)
		t.Cost, t.Units, after = t.Cost-Time(part.cost), t.Units-part.units, 0
	}
	done := int32(t.Done)
	if done == 0 {
		done = sinkSlot
	}
	e.push(op{kind: opServe, on: int32(t.On), after: after, done: done, cost: int64(t.Cost), units: t.Units})
}

// Raise makes point p no earlier than q: p becomes the later of the two.
func (e *Evaluator) Raise(p, q Point) {
	if p != 0 && q != 0 {
		e.push(op{kind: opRaise, done: int32(p), after: int32(q)})
	}
}

// Wait makes the resource's next task begin no earlier than p.
func (e *Evaluator) Wait(r Resource, p Point) { e.Raise(e.resources[r].slot, p) }

// Free returns the point at which the resource is free. It moves with each task, and is not to
// be released.
func (e *Evaluator) Free(r Resource) Point { return e.resources[r].slot }

// Times returns the time of p in each setting, in a new slice.
func (e *Evaluator) Times(p Point) ([]Time, error) {
	e.flush()
	if e.err != nil {
		return nil, e.err
	}
	out := make([]Time, 0, e.lanes+laneBlock)
	for _, w := range e.workers {
		out = w.appendTimes(out, int(p))
	}
	return out[:e.lanes], nil
}

// At returns the time of p in one setting. It is cheaper than Times, for choices that depend on
// times so far.
func (e *Evaluator) At(p Point, lane int) (Time, error) {
	e.flush()
	for _, w := range slices.Backward(e.workers) {
		if lane >= w.first {
			return w.time(int(p), lane-w.first), e.err
		}
	}
	return 0, e.err
}

// Close ends the evaluator's goroutines.
func (e *Evaluator) Close() {
	for _, w := range e.workers {
		w.stop()
	}
	e.workers = nil
}

func (e *Evaluator) push(o op) {
	e.batch.ops = append(e.batch.ops, o)
	if len(e.batch.ops) == cap(e.batch.ops) {
		e.send()
	}
}

// send gives the batch to the workers, which evaluate it while the next one fills.
func (e *Evaluator) send() {
	b := e.batch
	if len(b.ops) == 0 || len(e.workers) == 0 {
		b.ops = b.ops[:0]
		return
	}
	b.slots = e.slots
	if len(e.workers) == 1 {
		e.workers[0].run(b)
		b.ops = b.ops[:0]
		return
	}
	b.pending.Add(len(e.workers))
	for _, w := range e.workers {
		w.batches <- b
	}
	e.batch = b.next()
}

// flush waits until everything that was added is evaluated.
func (e *Evaluator) flush() {
	e.send()
	e.batch.waitIdle()
}
