package opencl

import (
	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// directRead is the size from which a read goes straight from the driver into the ring
// even if other threads of the client must wait meanwhile.
const directRead = 1 << 20

func (w *Worker) doClEnqueueReadBuffer(m *message, a *argsClEnqueueReadBuffer) error {
	c := w.begin(m)
	queue, mem := c.handle(kindQueue, a.CommandQueue), c.handle(kindMem, a.Buffer)
	return w.read(c, w.bufferTransfer(fnClEnqueueReadBuffer, queue, mem, a.Offset, a.Size), a.BlockingRead != 0, a.EventWaitList, a.Event)
}

func (w *Worker) doClEnqueueReadBufferRect(m *message, a *argsClEnqueueReadBufferRect) error {
	c := w.begin(m)
	queue, mem := c.handle(kindQueue, a.CommandQueue), c.handle(kindMem, a.Buffer)
	t, err := w.rectTransfer(c, fnClEnqueueReadBufferRect, queue, mem, a.BufferOrigin, a.Region, a.BufferRowPitch, a.BufferSlicePitch)
	if err != nil {
		return w.malformed(m, err)
	}
	return w.read(c, t, a.BlockingRead != 0, a.EventWaitList, a.Event)
}

func (w *Worker) doClEnqueueReadImage(m *message, a *argsClEnqueueReadImage) error {
	c := w.begin(m)
	t, err := w.imageTransfer(c, fnClEnqueueReadImage, c.handle(kindQueue, a.CommandQueue), a.Image, a.Origin, a.Region)
	if err != nil {
		return w.malformed(m, err)
	}
	return w.read(c, t, a.BlockingRead != 0, a.EventWaitList, a.Event)
}

// read executes a read. A blocking one is answered with the data, another one
// is followed by a data notice some time.
func (w *Worker) read(c *call, t transfer, blocking bool, waits []uint64, event uint64) error {
	list := c.waitList(waits)
	out := c.wanted(event)
	if t.total > session.MaxBulk {
		c.fail(clInvalidValue)
	}
	if c.status != clSuccess {
		return w.failRead(c, c.status)
	}
	if !w.submit(c) {
		return w.failRead(c, c.status)
	}
	direct := len(w.unresolved) == 0 && t.unit <= w.opts.Ring.Area()/4 && t.total > 0
	if direct && (t.total >= directRead || blocking && alone(c.m)) {
		return w.readDirect(c, t, waits, list, out)
	}
	block := w.stage(int(min(t.total, 1<<40)))
	switch {
	case block != nil:
		return w.readStaged(c, t, block, blocking, list, out)
	case direct:
		return w.readDirect(c, t, waits, list, out)
	}
	w.unsubmit()
	return w.failRead(c, clOutOfHostMemory)
}

// failRead answers a read that did not begin: one that nobody waits for by a data
// notice with its status.
func (w *Worker) failRead(c *call, status int32) error {
	if c.m.Flags&session.WantReply != 0 || c.broken != nil {
		return w.finish(c, status)
	}
	if c.event != 0 {
		if err := w.failedEvent(c); err != nil {
			return err
		}
	}
	return w.notify(opData, (&argsData{Serial: c.m.Serial, Status: status}).encode(nil))
}

// readDirect has the driver write into the ring. The dispatcher does it when the
// client is alone; else a goroutine that has the queue for itself meanwhile.
func (w *Worker) readDirect(c *call, t transfer, waits []uint64, list waitList, out uintptr) error {
	w.flush()
	s := stream{w: w, transfer: t, ticket: c.ticket(), lone: alone(c.m), serial: c.m.Serial, waits: list, event: out, queue: c.queue, id: c.event}
	if c.m.Flags&session.WantReply == 0 {
		s.ticket = ticket{}
	}
	if alone(c.m) {
		defer w.unsubmit() // it is done when this is
		status, err := s.run()
		switch {
		case err != nil:
			return err
		case status != clSuccess:
			return w.failRead(c, status)
		}
		if c.event != 0 {
			w.addEvent(c, uintptr(word(c.eventOut)))
		}
		if c.queue.inOrder {
			w.idle(c.queue)
		}
		return nil
	}
	return w.readBeside(c, &s, waits)
}

// readBeside runs a stream beside the dispatcher. Its arguments stay where they
// are: the dispatcher goes on with another frame.
func (w *Worker) readBeside(c *call, s *stream, waits []uint64) error {
	keep := func(uintptr, int32) {}
	if c.event != 0 {
		keep = w.promise(c, kindEvent, c.event)
	}
	if c.broken != nil {
		return w.malformed(c.m, c.broken)
	}
	frame, made, release := w.frame, c.eventOut, w.holdTransfer(s, waits)
	w.frame = w.frames.get()
	done := make(chan struct{})
	c.queue.hold = done
	w.beside(func() {
		status, err := s.run()
		handle := uintptr(word(made))
		if err == nil && status != clSuccess {
			handle = 0
			err = s.fail(status)
			status = clExecStatusError
		}
		if handle != 0 {
			w.host.force(objectCost)
			item := &pending{queue: s.queue, event: handle, id: s.id}
			w.pending.add(item)
		}
		keep(handle, status)
		release()
		w.frames.put(frame)
		w.unsubmit()
		close(done)
		w.fault(err)
	})
	return nil
}

// holdTransfer keeps what a transfer uses alive until the function that it returns
// is called.
func (w *Worker) holdTransfer(s *stream, waits []uint64) (release func()) {
	queue, mem := s.queue.handle, s.transfer.mem
	w.drv.Call(fnClRetainCommandQueue, queue)
	w.drv.Call(fnClRetainMemObject, mem)
	var events []uintptr
	for _, id := range waits {
		e, _ := w.objects.Get(id, kindEvent)
		events = append(events, e.Handle)
		w.drv.Call(fnClRetainEvent, e.Handle)
	}
	return func() {
		for _, e := range events {
			w.drv.Call(fnClReleaseEvent, e)
		}
		w.drv.Call(fnClReleaseMemObject, mem)
		w.drv.Call(fnClReleaseCommandQueue, queue)
	}
}

// readStaged enqueues the read in its place and sends the data when it is there.
func (w *Worker) readStaged(c *call, t transfer, block []byte, blocking bool, list waitList, out uintptr) error {
	if blocking && !w.slot() {
		w.staging.put(block)
		w.unsubmit()
		return w.failRead(c, clOutOfHostMemory)
	}
	item := &pending{queue: c.queue, id: c.event}
	if out == 0 {
		out, item.owned = c.newEvent(), true
	}
	status := t.move(driver.Address(block), 0, int(t.total), clFalse, list.count, list.list, out)
	if status != clSuccess {
		if blocking {
			<-w.slots
		}
		w.staging.put(block)
		w.unsubmit()
		return w.failRead(c, status)
	}
	event := uintptr(word(c.eventOut))
	if !blocking {
		item.serial, item.data, item.block = c.m.Serial, block, block
		w.track(c, item)
		w.onComplete(event)
		return nil
	}
	w.drv.Call(fnClRetainEvent, event)
	w.track(c, item)
	w.flush()
	k := c.ticket()
	w.spawn(func() { w.answerRead(k, event, block) })
	return nil
}

func (w *Worker) answerRead(t ticket, event uintptr, block []byte) {
	status, data := w.waitFor(event), block
	w.drv.Call(fnClReleaseEvent, event)
	if status != clSuccess {
		data = nil
	}
	w.fault(w.answerSynchronised(t, status, nil, data))
	w.staging.put(block)
}
