package opencl

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// A queue is what the dispatcher knows of a command queue.
type queue struct {
	id        uint64
	handle    uintptr
	context   uintptr
	inOrder   bool
	profiling bool
	unflushed bool
	busy      bool // something may still run
	// hold is open while a transfer beside the dispatcher has the queue for
	// itself: what comes after it must not get between its pieces.
	hold chan struct{}
	// submitted counts commands; of the first reached it is known that they are
	// done. The budget holds room for those in between.
	submitted int64
	reached   atomic.Int64
	// flushes counts those that were asked for since the one that runs began.
	flushes atomic.Int32
}

func (w *Worker) addQueue(c *call, id uint64, handle uintptr) {
	status, value := ask(w.drv, w.frame, fnClGetCommandQueueInfo, handle, clQueueProperties)
	properties := uint64(0)
	if status == clSuccess {
		properties = word(value)
	}
	status, value = ask(w.drv, w.frame, fnClGetCommandQueueInfo, handle, clQueueContext)
	if status != clSuccess {
		c.fail(status)
	}
	w.queues[id] = &queue{
		id: id, handle: handle, context: uintptr(word(value)),
		inOrder: properties&clQueueOutOfOrder == 0, profiling: properties&clQueueProfiling != 0,
	}
}

const clQueueContext = 0x1090

// submit comes before every command: it waits for the session's turn and takes
// room for the command. When there is none the command has failed.
func (w *Worker) submit(c *call) bool {
	if w.opts.Gate != nil {
		w.opts.Gate.Submit()
	}
	if w.room(commandCost) {
		return true
	}
	c.fail(clOutOfHostMemory)
	return false
}

// unsubmit gives the room of a command back that the driver did not take.
func (w *Worker) unsubmit() { w.host.give(commandCost) }

// submitted comes after every command that the driver took.
func (w *Worker) submitted(c *call) {
	q := c.queue
	if q == nil {
		w.unsubmit()
	} else {
		q.submitted++
		q.busy = true
		if !q.unflushed {
			q.unflushed = true
			w.unflushed = append(w.unflushed, q)
		}
	}
	switch {
	case c.event != 0:
		w.addEvent(c, uintptr(word(c.eventOut)))
	case c.nameless:
		w.holdEvent(c, uintptr(word(c.eventOut)))
	}
}

// reach says that the first count commands of a queue are done. Any goroutine may
// call it.
func (w *Worker) reach(q *queue, count int64) {
	for {
		old := q.reached.Load()
		if count <= old {
			return
		}
		if q.reached.CompareAndSwap(old, count) {
			w.host.give((count - old) * commandCost)
			return
		}
	}
}

// idle says that all commands of a queue are done.
func (w *Worker) idle(q *queue) {
	q.busy = false
	w.reach(q, q.submitted)
}

// flush gives everything that is queued to the device.
func (w *Worker) flush() {
	for _, q := range w.unflushed {
		q.unflushed = false
		if q.handle != 0 {
			w.flushQueue(q)
		}
	}
	w.unflushed = w.unflushed[:0]
}

// flushQueue does not wait for a flush while the client can hold commands back:
// there are drivers that execute on flush. Then one goroutine a queue flushes
// until nobody has asked again.
func (w *Worker) flushQueue(q *queue) {
	handle := q.handle
	if len(w.unresolved) == 0 {
		w.drv.Call(fnClFlush, handle)
		return
	}
	if q.flushes.Add(1) > 1 {
		return
	}
	w.drv.Call(fnClRetainCommandQueue, handle)
	run := func() {
		for asked := q.flushes.Load(); ; asked = q.flushes.Load() {
			w.drv.Call(fnClFlush, handle)
			if q.flushes.CompareAndSwap(asked, 0) {
				break
			}
		}
		w.drv.Call(fnClReleaseCommandQueue, handle)
	}
	if !w.beside(run) {
		// So many wait already that this one goes without: whoever waits for
		// the queue flushes it again.
		q.flushes.Store(0)
		w.drv.Call(fnClReleaseCommandQueue, handle)
	}
}

// outlive keeps count of the commands of a queue that the client gives up.
func (w *Worker) outlive(q *queue) {
	if q.reached.Load() >= q.submitted {
		return
	}
	w.frame.Reset()
	b, err := w.frame.Bytes(8)
	if err != nil || int32(w.drv.Call(fnClEnqueueMarkerWithWaitList, q.handle, 0, 0, driver.Address(b))) != clSuccess {
		return // what it holds stays held
	}
	w.flushQueue(q)
	item := &pending{queue: q, event: uintptr(word(b)), owned: true, last: q.submitted}
	w.pending.add(item)
	w.onComplete(item.event)
}

// settleQueue waits for a transfer that has the queue for itself.
func (w *Worker) settleQueue(id uint64) {
	if q := w.queues[id]; q != nil && q.hold != nil {
		<-q.hold
		q.hold = nil
	}
}

// Drain waits until the device has done all that it was given, unless that
// depends on the client. Only the dispatcher's Gate may call it.
func (w *Worker) Drain() {
	if len(w.unresolved) == 0 {
		w.drain()
	}
}

func (w *Worker) drain() {
	w.flush()
	for id, q := range w.queues {
		w.settleQueue(id)
		if q.busy {
			w.untilDone(fnClFinish, q.handle)
			w.idle(q)
		}
	}
}

// Busy reports whether the device may be working for us.
func (w *Worker) Busy() bool {
	for _, q := range w.queues {
		if q.busy {
			return true
		}
	}
	return false
}

func (w *Worker) doClFlush(m *message, a *argsClFlush) error {
	c := w.begin(m)
	handle := c.handle(kindQueue, a.CommandQueue)
	if c.status != clSuccess || handle == 0 {
		return w.finish(c, w.invoke(c, fnClFlush, handle))
	}
	w.flush() // commands of other queues may be what this one's wait for
	w.flushQueue(c.queue)
	return w.finish(c, clSuccess)
}

func (w *Worker) doClFinish(m *message, a *argsClFinish) error {
	c := w.begin(m)
	handle := c.handle(kindQueue, a.CommandQueue)
	if c.status != clSuccess || handle == 0 {
		return w.finish(c, w.invoke(c, fnClFinish, handle))
	}
	w.flush()
	if alone(m) {
		status := w.untilDone(fnClFinish, handle)
		w.idle(c.queue)
		if err := w.synchronised(); err != nil {
			return err
		}
		return w.finish(c, status)
	}
	// The marker stands for what was queued before: what other threads queue
	// later is not waited for.
	out := c.memory(8)
	status := c.status
	if status == clSuccess {
		status = int32(w.drv.Call(fnClEnqueueMarkerWithWaitList, handle, 0, 0, driver.Address(out)))
	}
	if status != clSuccess {
		return w.finish(c, status)
	}
	w.flushQueue(c.queue)
	marker, t, q, last := uintptr(word(out)), c.ticket(), c.queue, c.queue.submitted
	if w.beside(func() {
		w.waitFor(marker)
		w.drv.Call(fnClReleaseEvent, marker)
		w.reach(q, last)
		// A command that failed is told by its event, not by clFinish.
		w.fault(w.answerSynchronised(t, clSuccess, nil))
	}) {
		return nil
	}
	w.drv.Call(fnClReleaseEvent, marker)
	return w.finish(c, clOutOfHostMemory)
}

func (w *Worker) doClWaitForEvents(m *message, a *argsClWaitForEvents) error {
	c := w.begin(m)
	list := c.handles(kindEvent, a.EventList)
	if c.status != clSuccess || list == 0 {
		return w.finish(c, w.invoke(c, fnClWaitForEvents, uintptr(len(a.EventList)), list))
	}
	w.flush()
	if alone(m) {
		status := w.untilDone(fnClWaitForEvents, uintptr(len(a.EventList)), list)
		if err := w.synchronised(); err != nil {
			return err
		}
		return w.finish(c, status)
	}
	events := make([]uintptr, len(a.EventList))
	for i, id := range a.EventList {
		e, _ := w.objects.Get(id, kindEvent)
		events[i] = e.Handle
		w.drv.Call(fnClRetainEvent, e.Handle)
	}
	release := func() {
		for _, e := range events {
			w.drv.Call(fnClReleaseEvent, e)
		}
	}
	t := c.ticket()
	if w.beside(func() {
		status := w.waitFor(events...)
		release()
		w.fault(w.answerSynchronised(t, status, nil))
	}) {
		return nil
	}
	release()
	return w.finish(c, clOutOfHostMemory)
}

// waitFor waits for events that the caller has retained. It is for goroutines
// other than the dispatcher's.
func (w *Worker) waitFor(events ...uintptr) int32 {
	frame := w.frames.get()
	defer w.frames.put(frame)
	b, err := frame.Bytes(8 * len(events))
	if err != nil {
		return clOutOfHostMemory
	}
	for i, e := range events {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(e))
	}
	return int32(w.drv.Call(fnClWaitForEvents, uintptr(len(events)), driver.Address(b)))
}

// answerSynchronised answers a call whose reply says that commands are done.
func (w *Worker) answerSynchronised(t ticket, status int32, body []byte, bulk ...[]byte) error {
	if err := w.synchronised(); err != nil {
		return err
	}
	return w.answer(t, status, body, bulk...)
}
