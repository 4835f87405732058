package opencl

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// events tracks commands until they are complete, and then reports them to the client and frees
// their memory.
type events struct {
	drv       *driver.Table
	callbacks *driver.Callbacks
	client    *client
	frames    *frames
	device    *device
	objects   *objects
	output    *output
	staging   *staging
	failed    failedEvents

	pending    pendingList
	unresolved map[uint64]bool // user events that the client has not set yet; dispatcher only
	gated      atomic.Bool     // whether unresolved has any
}

// pendingCommand is a command whose completion has effects: a notice to the client, data to send,
// memory to free.
type pendingCommand struct {
	queue *queue
	event uintptr
	// owned reports that the worker must release the event: the client never had it, or has
	// released it.
	owned   bool
	id      uint64 // the client's event; 0: none, or released
	watched bool

	serial uint64 // of a non-blocking read
	data   []byte // the data that it read
	block  []byte // staging memory to free

	last   int64 // number of commands of an in-order queue that are done with it
	done   bool
	status int32
}

// recordPosition records how many commands of an in-order queue are done when this one is.
func (p *pendingCommand) recordPosition() {
	if p.queue != nil && p.queue.inOrder {
		p.last = p.queue.submitted
	}
}

// pendingList holds the commands in the order of their submission. Its lock is held while notices
// about them are sent: once reportCompleted returns, the notices of all commands that were complete
// before have been sent.
type pendingList struct {
	count atomic.Int32
	wake  chan struct{}

	mu      sync.Mutex
	list    []*pendingCommand
	byID    map[uint64]*pendingCommand
	scratch []byte // for the driver's answers
	// failing reports that a command has failed since the last full search: commands that fail with
	// it need not wait for earlier commands of their queue.
	failing bool
}

func (p *pendingList) init() (err error) {
	p.wake = make(chan struct{}, 1)
	p.byID = make(map[uint64]*pendingCommand)
	p.scratch, err = driver.Alloc(64)
	return err
}

func (p *pendingList) add(item *pendingCommand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, item)
	p.count.Store(int32(len(p.list)))
	if item.id != 0 {
		p.byID[item.id] = item
	}
}

// wakeCompleter makes the completer check for completed commands. It never blocks: the
// driver's threads call it.
func (p *pendingList) wakeCompleter() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// runCompleter reports commands whenever the driver signals that one is complete.
func (ev *events) runCompleter(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ev.pending.wake:
			if err := ev.output.drain(); err != nil {
				ev.client.fail(err)
				return
			}
			ev.client.fail(ev.reportCompleted())
		}
	}
}

// synchronize sends everything that must precede a reply that reports commands as done: their
// output, their data, their events.
func (ev *events) synchronize() error {
	if err := ev.output.drain(); err != nil {
		return err
	}
	return ev.reportCompleted()
}

// synchronizeAndAnswer answers a call whose reply reports commands as done.
func (ev *events) synchronizeAndAnswer(t ticket, status int32, body []byte, bulk ...[]byte) error {
	if err := ev.synchronize(); err != nil {
		return err
	}
	return ev.client.answer(t, status, body, bulk...)
}

// reportCompleted sends the notices of complete commands and frees the commands' memory.
func (ev *events) reportCompleted() error {
	p := &ev.pending
	if p.count.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A command that is found complete may depend on a command that was checked earlier and was not
	// complete then: only when a whole pass finds nothing new are all dependencies of the found
	// commands found as well.
	for ev.findCompleted() {
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
			err = ev.reportCommand(item)
		}
		ev.drop(item)
	}
	clear(p.list[len(kept):])
	p.list = kept
	p.count.Store(int32(len(kept)))
	return err
}

// findCompleted marks commands that are complete and reports whether it found any.
func (ev *events) findCompleted() bool {
	found := false
	var stuck []*queue // in-order queues whose oldest command still runs
	for _, item := range ev.pending.list {
		if item.done || !ev.pending.failing && contains(stuck, item.queue) {
			continue
		}
		switch status := ev.status(item.event); {
		case status <= clComplete:
			item.done, item.status, found = true, status, true
			ev.pending.failing = ev.pending.failing || status < 0
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

// status returns an event's execution status; an event that can't be queried counts as failed.
// It requires pending.mu.
func (ev *events) status(event uintptr) int32 {
	b := ev.pending.scratch
	clear(b[:8])
	if s := int32(ev.drv.Call(fnClGetEventInfo, event, clEventExecutionStatus, 4, driver.Address(b), 0)); s != clSuccess {
		return s
	}
	return int32(uint32(firstWord(b)))
}

// reportCommand sends the notices of a complete command, its data first.
func (ev *events) reportCommand(item *pendingCommand) error {
	if item.serial != 0 {
		n := argsData{Serial: item.serial, Status: item.status}
		data := item.data
		if item.status < 0 {
			data = nil
		}
		if err := ev.client.notify(opData, n.encode(nil), data); err != nil {
			return err
		}
	}
	profiling := item.queue != nil && item.queue.profiling
	if item.id == 0 || !item.watched && !profiling && item.status == clComplete {
		return nil
	}
	return ev.reportEvent(item.id, item.event, item.status, profiling)
}

func (ev *events) reportEvent(id uint64, event uintptr, status int32, profiling bool) error {
	n := argsEvent{Event: id, Status: status}
	if profiling && status == clComplete {
		n.Times = ev.times(event)
	}
	return ev.client.notify(opEvent, n.encode(nil))
}

// times returns an event's profiling times. It requires pending.mu.
func (ev *events) times(event uintptr) []uint64 {
	times := make([]uint64, 0, profilingTimes)
	b := ev.pending.scratch
	for i := range uintptr(profilingTimes) {
		clear(b[:8])
		status := int32(ev.drv.Call(fnClGetEventProfilingInfo, event, clProfilingCommandQueued+i, 8, driver.Address(b), 0))
		switch {
		case status == clSuccess:
			times = append(times, firstWord(b))
		case clProfilingCommandQueued+i > clProfilingCommandEnd:
			times = append(times, times[len(times)-1]) // before OpenCL 2.0: complete = end
		default:
			return nil
		}
	}
	return ev.device.clock.toMonotonic(times)
}

func (ev *events) drop(item *pendingCommand) {
	if item.id != 0 {
		delete(ev.pending.byID, item.id)
	}
	if item.id != 0 && item.status < 0 {
		ev.objects.updates.add(objectUpdate{id: item.id, entry: session.Entry{Failed: clExecStatusError}, failed: true})
	}
	if item.queue != nil {
		item.queue.markReached(item.last)
	}
	if item.owned {
		ev.failed.release(item.event)
	}
	if item.block != nil {
		ev.staging.put(item.block)
	}
}

// hasFailed reports whether an event's command is known to have failed since the driver accepted
// it. A command that depends on it must not reach the driver: some drivers never complete a command
// whose wait list had failed before. Only the dispatcher calls it.
func (ev *events) hasFailed(id uint64) bool {
	p := &ev.pending
	if p.count.Load() > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if item := p.byID[id]; item != nil {
			return ev.status(item.event) < 0
		}
	}
	// The completer may have reported the command since the message's updates were applied.
	ev.objects.applyUpdates()
	e, _ := ev.objects.table.Get(id, kindEvent)
	return e.Failed != 0
}

// notifyOnCompletion wakes the completer when the event is complete.
func (ev *events) notifyOnCompletion(event uintptr) {
	addr, token := ev.callbacks.Event(func(int32) { ev.pending.wakeCompleter() })
	if addr == 0 || int32(ev.drv.Call(fnClSetEventCallback, event, clComplete, addr, token)) != clSuccess {
		ev.callbacks.Drop(token)
		ev.pending.wakeCompleter()
	}
}

// markResolved records that a user event is set.
func (ev *events) markResolved(id uint64) {
	delete(ev.unresolved, id)
	ev.gated.Store(len(ev.unresolved) > 0)
}

// failedUserEvent is the status, as the driver's argument, of a user event that the client released
// before setting it.
const failedUserEvent = ^uintptr(0)

// release drops the client's reference to an event. A pending command keeps the handle until it is
// complete.
func (ev *events) release(id uint64, handle uintptr) {
	p := &ev.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if ev.unresolved[id] {
		// The client can't set the event any more: commands that wait for it would never end.
		ev.drv.Call(fnClSetUserEventStatus, handle, failedUserEvent)
		ev.markResolved(id)
		p.failing = true
		p.wakeCompleter()
	}
	item := p.byID[id]
	if item == nil {
		ev.failed.release(handle)
		return
	}
	delete(p.byID, id)
	item.id, item.owned = 0, true
}

// waitFor waits for events that the caller has retained. The dispatcher must not call it.
func (ev *events) waitFor(events ...uintptr) int32 {
	frame := ev.frames.get()
	defer ev.frames.put(frame)
	b, err := frame.Bytes(8 * len(events))
	if err != nil {
		return clOutOfHostMemory
	}
	for i, e := range events {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(e))
	}
	return int32(ev.drv.Call(fnClWaitForEvents, uintptr(len(events)), driver.Address(b)))
}
