package opencl

import (
	"encoding/binary"

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

// submit comes before every command.
func (w *Worker) submit() {
	if w.opts.Gate != nil {
		w.opts.Gate.Submit()
	}
}

// submitted comes after every command that the driver took.
func (w *Worker) submitted(c *call) {
	if q := c.queue; q != nil {
		q.busy = true
		if !q.unflushed {
			q.unflushed = true
			w.unflushed = append(w.unflushed, q)
		}
	}
	if c.event != 0 {
		w.addEvent(c, uintptr(word(c.eventOut)))
	}
}

// flush gives everything that is queued to the device.
func (w *Worker) flush() {
	for _, q := range w.unflushed {
		q.unflushed = false
		if q.handle != 0 {
			w.flushQueue(q.handle)
		}
	}
	w.unflushed = w.unflushed[:0]
}

// flushQueue does not wait for a flush while the client can hold commands back:
// there are drivers that execute on flush.
func (w *Worker) flushQueue(handle uintptr) {
	if len(w.unresolved) == 0 {
		w.drv.Call(fnClFlush, handle)
		return
	}
	w.drv.Call(fnClRetainCommandQueue, handle)
	w.waits.Go(func() {
		w.drv.Call(fnClFlush, handle)
		w.drv.Call(fnClReleaseCommandQueue, handle)
	})
}

// Drain waits until the device has done all that it was given, unless that
// depends on the client. Only the dispatcher's Gate may call it.
func (w *Worker) Drain() {
	if len(w.unresolved) > 0 {
		return
	}
	w.flush()
	for _, q := range w.queues {
		if q.busy {
			w.drv.Call(fnClFinish, q.handle)
			q.busy = false
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

func (w *Worker) doClFinish(m *message, a *argsClFinish) error {
	c := w.begin(m)
	handle := c.handle(kindQueue, a.CommandQueue)
	if c.status != clSuccess || handle == 0 {
		return w.finish(c, w.invoke(c, fnClFinish, handle))
	}
	w.flush()
	if alone(m) {
		status := int32(w.drv.Call(fnClFinish, handle))
		c.queue.busy = false
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
	w.flushQueue(handle)
	marker, t := uintptr(word(out)), c.ticket()
	w.waits.Go(func() {
		w.waitFor(marker)
		w.drv.Call(fnClReleaseEvent, marker)
		// A command that failed is told by its event, not by clFinish.
		w.fault(w.answerSynchronised(t, clSuccess, nil))
	})
	return nil
}

func (w *Worker) doClWaitForEvents(m *message, a *argsClWaitForEvents) error {
	c := w.begin(m)
	list := c.handles(kindEvent, a.EventList)
	if c.status != clSuccess || list == 0 {
		return w.finish(c, w.invoke(c, fnClWaitForEvents, uintptr(len(a.EventList)), list))
	}
	w.flush()
	if alone(m) {
		status := int32(w.drv.Call(fnClWaitForEvents, uintptr(len(a.EventList)), list))
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
	t := c.ticket()
	w.waits.Go(func() {
		status := w.waitFor(events...)
		for _, e := range events {
			w.drv.Call(fnClReleaseEvent, e)
		}
		w.fault(w.answerSynchronised(t, status, nil))
	})
	return nil
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
