package opencl

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// A pending command has something to be done once it is complete: its client to
// be told, its data to be sent, its memory to be given back.
type pending struct {
	queue *queue
	event uintptr
	// owned says that the event is ours to release: the client has none, or no more.
	owned   bool
	id      uint64 // the client's event; 0: none, or released
	watched bool

	serial uint64 // of a non-blocking read
	data   []byte // what it read
	block  []byte // staging memory to give back

	last   int64 // how many commands of an in-order queue are done with it
	done   bool
	status int32
}

// count notes that the command is the next of its queue.
func (p *pending) count() {
	if p.queue != nil && p.queue.inOrder {
		p.last = p.queue.submitted
	}
}

// pendings are the commands in the order in which they were submitted. Their
// lock is held while notices about them are sent, so that whoever has called
// settle knows that all that was complete before has been sent.
type pendings struct {
	count atomic.Int32
	wake  chan struct{}

	mu      sync.Mutex
	list    []*pending
	byID    map[uint64]*pending
	scratch []byte // for the driver's answers
	// failing says that a command has failed since all were looked at: those
	// that fail with it need not wait for what is before them in their queue.
	failing bool
}

func (p *pendings) init() (err error) {
	p.wake = make(chan struct{}, 1)
	p.byID = make(map[uint64]*pending)
	p.scratch, err = driver.Alloc(64)
	return err
}

func (p *pendings) add(item *pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, item)
	p.count.Store(int32(len(p.list)))
	if item.id != 0 {
		p.byID[item.id] = item
	}
}

// poke makes the completer look. It never blocks: the driver's threads call it.
func (p *pendings) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// completer settles whenever the driver says that something is complete.
func (w *Worker) completer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.pending.wake:
			if err := w.drainOutput(); err != nil {
				w.fault(err)
				return
			}
			w.fault(w.settle())
		}
	}
}

// settle sends and frees what belongs to commands that are complete.
func (w *Worker) settle() error {
	p := &w.pending
	if p.count.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A command that is seen complete may depend on one that was looked at
	// before and was not: only when a whole pass finds nothing new is
	// everything found that the found ones depend on.
	for w.findDone() {
	}
	p.failing = false
	var err error
	kept := p.list[:0]
	for _, item := range p.list {
		if !item.done {
			kept = append(kept, item)
			continue
		}
		if err == nil {
			err = w.tell(item)
		}
		w.drop(item)
	}
	clear(p.list[len(kept):])
	p.list = kept
	p.count.Store(int32(len(kept)))
	return err
}

// findDone marks what is complete and reports whether it found any.
func (w *Worker) findDone() bool {
	found := false
	var stuck []*queue // in-order queues whose oldest command still runs
	for _, item := range w.pending.list {
		if item.done || !w.pending.failing && contains(stuck, item.queue) {
			continue
		}
		switch status := w.eventStatus(item.event); {
		case status <= clComplete:
			item.done, item.status, found = true, status, true
			w.pending.failing = w.pending.failing || status < 0
		case item.queue != nil && item.queue.inOrder:
			stuck = append(stuck, item.queue)
		}
	}
	return found
}

func contains(queues []*queue, q *queue) bool {
	for _, have := range queues {
		if have == q && q != nil {
			return true
		}
	}
	return false
}

// eventStatus needs pending.mu. An event that can't be asked counts as failed.
func (w *Worker) eventStatus(event uintptr) int32 {
	b := w.pending.scratch
	clear(b[:8])
	if s := int32(w.drv.Call(fnClGetEventInfo, event, clEventExecutionStatus, 4, driver.Address(b), 0)); s != clSuccess {
		return s
	}
	return int32(uint32(word(b)))
}

// tell sends what a complete command has to say: its data first.
func (w *Worker) tell(item *pending) error {
	if item.serial != 0 {
		n := argsData{Serial: item.serial, Status: item.status}
		data := item.data
		if item.status < 0 {
			data = nil
		}
		if err := w.notify(opData, n.encode(nil), data); err != nil {
			return err
		}
	}
	profiling := item.queue != nil && item.queue.profiling
	if item.id == 0 || !item.watched && !profiling && item.status == clComplete {
		return nil
	}
	return w.tellEvent(item.id, item.event, item.status, profiling)
}

func (w *Worker) tellEvent(id uint64, event uintptr, status int32, profiling bool) error {
	n := argsEvent{Event: id, Status: status}
	if profiling && status == clComplete {
		n.Times = w.eventTimes(event)
	}
	return w.notify(opEvent, n.encode(nil))
}

// eventTimes needs pending.mu.
func (w *Worker) eventTimes(event uintptr) []uint64 {
	times := make([]uint64, 0, profilingTimes)
	b := w.pending.scratch
	for i := range uintptr(profilingTimes) {
		clear(b[:8])
		status := int32(w.drv.Call(fnClGetEventProfilingInfo, event, clProfilingCommandQueued+i, 8, driver.Address(b), 0))
		switch {
		case status == clSuccess:
			times = append(times, word(b))
		case clProfilingCommandQueued+i > clProfilingCommandEnd:
			times = append(times, times[len(times)-1]) // before OpenCL 2.0: complete is end
		default:
			return nil
		}
	}
	return w.clock.host(times)
}

func (w *Worker) drop(item *pending) {
	if item.id != 0 {
		delete(w.pending.byID, item.id)
	}
	if item.id != 0 && item.status < 0 {
		w.late.add(news{id: item.id, entry: session.Entry{Failed: clExecStatusError}, failed: true})
	}
	if item.queue != nil {
		w.reach(item.queue, item.last)
	}
	if item.owned {
		w.drv.Call(fnClReleaseEvent, item.event)
	}
	if item.block != nil {
		w.staging.put(item.block)
	}
}
