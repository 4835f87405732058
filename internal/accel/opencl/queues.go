package opencl

import (
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// queues holds the session's command queues and counts their commands. Only the dispatcher uses it,
// except waiting.
type queues struct {
	drv     *driver.Table
	frames  *frames
	budget  *budget
	events  *events
	helpers *helpers

	byID      map[uint64]*queue
	unflushed []*queue
	waiting   atomic.Bool // the dispatcher waits for the device
}

// queue is the dispatcher's state of a command queue.
type queue struct {
	id        uint64
	handle    uintptr
	context   uintptr
	budget    *budget
	inOrder   bool
	profiling bool
	unflushed bool
	busy      bool // a command may still run
	// transferDone is open while a transfer beside the dispatcher has exclusive use of the queue:
	// no later command may get between its pieces.
	transferDone chan struct{}
	// submitted counts commands; the first reached of them are known to be done. The budget
	// reserves memory for the commands in between.
	submitted int64
	reached   atomic.Int64
	// flushes counts the flushes that were requested since the running one began.
	flushes atomic.Int32
}

// markReached records that the first count commands of the queue are done. Any goroutine may call
// it.
func (q *queue) markReached(count int64) {
	for {
		old := q.reached.Load()
		if count <= old {
			return
		}
		if q.reached.CompareAndSwap(old, count) {
			q.budget.release((count - old) * commandCost)
			return
		}
	}
}

// markIdle records that all commands of a queue are done.
func (q *queue) markIdle() {
	q.busy = false
	q.markReached(q.submitted)
}

func (qs *queues) add(c *call, id uint64, handle uintptr) {
	status, value := query(qs.drv, qs.frames.current, fnClGetCommandQueueInfo, handle, clQueueProperties)
	properties := uint64(0)
	if status == clSuccess {
		properties = firstWord(value)
	}
	status, value = query(qs.drv, qs.frames.current, fnClGetCommandQueueInfo, handle, clQueueContext)
	if status != clSuccess {
		c.fail(status)
	}
	qs.byID[id] = &queue{
		id: id, handle: handle, context: uintptr(firstWord(value)), budget: qs.budget,
		inOrder: properties&clQueueOutOfOrder == 0, profiling: properties&clQueueProfiling != 0,
	}
}

const clQueueContext = 0x1090

// flushAll submits everything that is queued to the device.
func (qs *queues) flushAll() {
	for _, q := range qs.unflushed {
		q.unflushed = false
		if q.handle != 0 {
			qs.flush(q)
		}
	}
	qs.unflushed = qs.unflushed[:0]
}

// flush submits a queue's commands to the device. It does not wait for the driver while the client
// can hold commands back: some drivers execute commands in flush. One goroutine per queue then
// flushes until no flush was requested meanwhile.
func (qs *queues) flush(q *queue) {
	handle := q.handle
	if len(qs.events.unresolved) == 0 {
		qs.drv.Call(fnClFlush, handle)
		return
	}
	if q.flushes.Add(1) > 1 {
		return
	}
	qs.drv.Call(fnClRetainCommandQueue, handle)
	run := func() {
		for asked := q.flushes.Load(); ; asked = q.flushes.Load() {
			qs.drv.Call(fnClFlush, handle)
			if q.flushes.CompareAndSwap(asked, 0) {
				break
			}
		}
		qs.drv.Call(fnClReleaseCommandQueue, handle)
	}
	if !qs.helpers.run(run) {
		// All slots for helpers are taken, so this flush is dropped: the next wait for the queue
		// flushes it.
		q.flushes.Store(0)
		qs.drv.Call(fnClReleaseCommandQueue, handle)
	}
}

// trackRemaining tracks the pending commands of a queue that the client has released.
func (qs *queues) trackRemaining(q *queue) {
	if q.reached.Load() >= q.submitted {
		return
	}
	qs.frames.current.Reset()
	b, err := qs.frames.current.Bytes(8)
	if err != nil || int32(qs.drv.Call(fnClEnqueueMarkerWithWaitList, q.handle, 0, 0, driver.Address(b))) != clSuccess {
		return // the memory reserved for its commands stays reserved
	}
	qs.flush(q)
	item := &pendingCommand{queue: q, event: uintptr(firstWord(b)), owned: true, last: q.submitted}
	qs.events.pending.add(item)
	qs.events.notifyOnCompletion(item.event)
}

// waitForTransfer waits for a transfer that has exclusive use of the queue.
func (qs *queues) waitForTransfer(id uint64) {
	if q := qs.byID[id]; q != nil && q.transferDone != nil {
		<-q.transferDone
		q.transferDone = nil
	}
}

func (qs *queues) drain() {
	qs.flushAll()
	for id, q := range qs.byID {
		qs.waitForTransfer(id)
		if q.busy {
			qs.callAndWait(fnClFinish, q.handle)
			q.markIdle()
		}
	}
}

// callAndWait calls a function that returns when the device has done its work.
func (qs *queues) callAndWait(fn int, args ...uintptr) int32 {
	qs.waiting.Store(true)
	defer qs.waiting.Store(false)
	return int32(qs.drv.Call(fn, args...))
}

// forget drops a queue that the client has released.
func (qs *queues) forget(id uint64) {
	q := qs.byID[id]
	if q == nil {
		return
	}
	if q.unflushed {
		qs.flush(q)
	}
	qs.trackRemaining(q)
	q.handle = 0 // a pending command may still point to it
	delete(qs.byID, id)
}
