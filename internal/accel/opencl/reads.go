package opencl

import (
	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// reads executes the calls that copy from the device to the client.
type reads struct {
	drv        *driver.Table
	caller     *caller
	client     *client
	frames     *frames
	budget     *budget
	staging    *staging
	hostMemory *hostMemory
	objects    *objects
	events     *events
	queues     *queues
	output     *output
	helpers    *helpers
	mover      *mover
}

// directRead is the size from which the driver writes a read directly into the ring even if other
// threads of the client must wait meanwhile.
const directRead = 1 << 20

func (rd *reads) doClEnqueueReadBuffer(m *message, a *argsClEnqueueReadBuffer) error {
	c := rd.caller.begin(m)
	queue, mem := c.handle(kindQueue, a.CommandQueue), c.handle(kindMem, a.Buffer)
	return rd.read(c, rd.mover.bufferTransfer(fnClEnqueueReadBuffer, queue, mem, a.Offset, a.Size), a.BlockingRead != 0, a.EventWaitList, a.Event)
}

func (rd *reads) doClEnqueueReadBufferRect(m *message, a *argsClEnqueueReadBufferRect) error {
	c := rd.caller.begin(m)
	queue, mem := c.handle(kindQueue, a.CommandQueue), c.handle(kindMem, a.Buffer)
	t, err := rd.mover.rectTransfer(c, fnClEnqueueReadBufferRect, queue, mem, a.BufferOrigin, a.Region, a.BufferRowPitch, a.BufferSlicePitch)
	if err != nil {
		return malformed(m, err)
	}
	return rd.read(c, t, a.BlockingRead != 0, a.EventWaitList, a.Event)
}

func (rd *reads) doClEnqueueReadImage(m *message, a *argsClEnqueueReadImage) error {
	c := rd.caller.begin(m)
	t, err := rd.mover.imageTransfer(c, fnClEnqueueReadImage, c.handle(kindQueue, a.CommandQueue), a.Image, a.Origin, a.Region)
	if err != nil {
		return malformed(m, err)
	}
	return rd.read(c, t, a.BlockingRead != 0, a.EventWaitList, a.Event)
}

// read executes a read. A blocking read is answered with the data, a non-blocking one is followed
// by a data notice.
func (rd *reads) read(c *call, t transfer, blocking bool, waits []uint64, event uint64) error {
	list := c.waitList(waits)
	out := c.clientEvent(event)
	if t.total > session.MaxBulk {
		c.fail(clInvalidValue)
	}
	if c.status != clSuccess {
		return rd.refuse(c, c.status)
	}
	if !rd.caller.submit(c) {
		return rd.refuse(c, c.status)
	}
	direct := len(rd.events.unresolved) == 0 && t.unit <= rd.mover.area/4 && t.total > 0
	if direct && (t.total >= directRead || blocking && alone(c.m)) {
		return rd.readDirect(c, t, waits, list, out)
	}
	block := rd.hostMemory.stage(int(min(t.total, 1<<40)))
	switch {
	case block != nil:
		return rd.readStaged(c, t, block, blocking, list, out)
	case direct:
		return rd.readDirect(c, t, waits, list, out)
	}
	rd.caller.cancelSubmit()
	return rd.refuse(c, clOutOfHostMemory)
}

// refuse answers a read that did not begin: a non-blocking read by a data notice with its status.
func (rd *reads) refuse(c *call, status int32) error {
	if c.m.Flags&session.WantReply != 0 || c.broken != nil {
		return rd.caller.finish(c, status)
	}
	if c.event != 0 {
		if err := rd.caller.addFailedEvent(c); err != nil {
			return err
		}
	}
	return rd.client.notify(opData, (&argsData{Serial: c.m.Serial, Status: status}).encode(nil))
}

// readDirect has the driver write into the ring: on the dispatcher when the client is alone, else
// on a goroutine that has exclusive use of the queue meanwhile.
func (rd *reads) readDirect(c *call, t transfer, waits []uint64, list waitList, out uintptr) error {
	rd.queues.flushAll()
	s := stream{reads: rd, transfer: t, ticket: c.ticket(), alone: alone(c.m), serial: c.m.Serial, waits: list, event: out, queue: c.queue, id: c.event}
	if c.m.Flags&session.WantReply == 0 {
		s.ticket = ticket{}
	}
	if alone(c.m) {
		defer rd.caller.cancelSubmit() // the command is done when this function is
		status, err := s.run()
		switch {
		case err != nil:
			return err
		case status != clSuccess:
			return rd.refuse(c, status)
		}
		if c.event != 0 {
			rd.caller.addEvent(c, uintptr(firstWord(c.eventOut)))
		}
		if c.queue.inOrder {
			c.queue.markIdle()
		}
		return nil
	}
	return rd.readConcurrently(c, &s, waits)
}

// readConcurrently runs a stream beside the dispatcher. Its arguments stay in their frame: the
// dispatcher continues with another one.
func (rd *reads) readConcurrently(c *call, s *stream, waits []uint64) error {
	keep := func(uintptr, int32) {}
	if c.event != 0 {
		keep = rd.objects.promise(c, kindEvent, c.event)
	}
	if c.broken != nil {
		return malformed(c.m, c.broken)
	}
	frame, made, release := rd.frames.current, c.eventOut, rd.retainTransfer(s, waits)
	rd.frames.current = rd.frames.get()
	done := make(chan struct{})
	c.queue.transferDone = done
	rd.helpers.run(func() {
		status, err := s.run()
		handle := uintptr(firstWord(made))
		if err == nil && status != clSuccess {
			handle = 0
			err = s.fail(status)
			status = clExecStatusError
		}
		if handle != 0 {
			rd.budget.add(objectCost)
			item := &pendingCommand{queue: s.queue, event: handle, id: s.id}
			rd.events.pending.add(item)
		}
		keep(handle, status)
		release()
		rd.frames.put(frame)
		rd.caller.cancelSubmit()
		close(done)
		rd.client.fail(err)
	})
	return nil
}

// retainTransfer keeps the objects of a transfer alive until release is called.
func (rd *reads) retainTransfer(s *stream, waits []uint64) (release func()) {
	queue, mem := s.queue.handle, s.transfer.mem
	rd.drv.Call(fnClRetainCommandQueue, queue)
	rd.drv.Call(fnClRetainMemObject, mem)
	var events []uintptr
	for _, id := range waits {
		e, _ := rd.objects.table.Get(id, kindEvent)
		events = append(events, e.Handle)
		rd.drv.Call(fnClRetainEvent, e.Handle)
	}
	return func() {
		for _, e := range events {
			rd.events.failed.release(e)
		}
		rd.drv.Call(fnClReleaseMemObject, mem)
		rd.drv.Call(fnClReleaseCommandQueue, queue)
	}
}

// readStaged enqueues the read to staging memory and sends the data when it is complete.
func (rd *reads) readStaged(c *call, t transfer, block []byte, blocking bool, list waitList, out uintptr) error {
	if blocking && !rd.helpers.acquireSlot() {
		rd.staging.put(block)
		rd.caller.cancelSubmit()
		return rd.refuse(c, clOutOfHostMemory)
	}
	item := &pendingCommand{queue: c.queue, id: c.event}
	if out == 0 {
		out, item.owned = c.newEvent(), true
	}
	status := t.move(driver.Address(block), 0, int(t.total), clFalse, list.count, list.list, out)
	if status != clSuccess {
		if blocking {
			<-rd.helpers.slots
		}
		rd.staging.put(block)
		rd.caller.cancelSubmit()
		return rd.refuse(c, status)
	}
	event := uintptr(firstWord(c.eventOut))
	if !blocking {
		item.serial, item.data, item.block = c.m.Serial, block, block
		rd.caller.track(c, item)
		rd.events.notifyOnCompletion(event)
		return nil
	}
	rd.drv.Call(fnClRetainEvent, event)
	rd.caller.track(c, item)
	rd.queues.flushAll()
	k := c.ticket()
	rd.helpers.spawn(func() { rd.answer(k, event, block) })
	return nil
}

func (rd *reads) answer(t ticket, event uintptr, block []byte) {
	status, data := rd.events.waitFor(event), block
	rd.events.failed.release(event)
	if status != clSuccess {
		data = nil
	}
	rd.client.fail(rd.events.synchronizeAndAnswer(t, status, nil, data))
	rd.staging.put(block)
}
