package opencl

import (
	"errors"
	"fmt"
	"io"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// directWrite is the size from which a write goes straight from the ring into the
// driver, blocking: smaller ones are cheaper to copy aside, so that the device keeps
// working.
const directWrite = 64 << 10

func (w *Worker) doClEnqueueWriteBuffer(m *message, a *argsClEnqueueWriteBuffer) error {
	c := w.begin(m)
	queue, mem := c.handle(kindQueue, a.CommandQueue), c.handle(kindMem, a.Buffer)
	return w.write(c, w.bufferTransfer(fnClEnqueueWriteBuffer, queue, mem, a.Offset, a.Size), a.EventWaitList, a.Event)
}

func (w *Worker) doClEnqueueWriteBufferRect(m *message, a *argsClEnqueueWriteBufferRect) error {
	c := w.begin(m)
	queue, mem := c.handle(kindQueue, a.CommandQueue), c.handle(kindMem, a.Buffer)
	t, err := w.rectTransfer(c, fnClEnqueueWriteBufferRect, queue, mem, a.BufferOrigin, a.Region, a.BufferRowPitch, a.BufferSlicePitch)
	if err != nil {
		return w.malformed(m, err)
	}
	return w.write(c, t, a.EventWaitList, a.Event)
}

func (w *Worker) doClEnqueueWriteImage(m *message, a *argsClEnqueueWriteImage) error {
	c := w.begin(m)
	t, err := w.imageTransfer(c, fnClEnqueueWriteImage, c.handle(kindQueue, a.CommandQueue), a.Image, a.Origin, a.Region)
	if err != nil {
		return w.malformed(m, err)
	}
	return w.write(c, t, a.EventWaitList, a.Event)
}

// write executes a write whose data is the message's bulk.
func (w *Worker) write(c *call, t transfer, waits []uint64, event uint64) error {
	list := c.waitList(waits)
	out := c.wanted(event)
	if c.status == clSuccess && c.m.Bulk != t.total {
		return w.malformed(c.m, fmt.Errorf("%d bytes for a write of %d", c.m.Bulk, t.total))
	}
	if c.status != clSuccess {
		return w.finish(c, c.status)
	}
	if !w.submit(c) {
		return w.finish(c, c.status)
	}
	if t.total == 0 {
		status := t.move(0, 0, 0, clFalse, list.count, list.list, out)
		if status == clSuccess {
			w.submitted(c)
		} else {
			w.unsubmit()
		}
		return w.finish(c, status)
	}
	status, err := w.writeBulk(c, t, list, out)
	if err != nil {
		return err
	}
	return w.finish(c, status)
}

// writeBulk chooses the way of the data. Straight from the ring into the driver is
// the shortest, but waits for what the command has to wait for: a client with
// several threads has its data copied aside instead when there is room.
func (w *Worker) writeBulk(c *call, t transfer, list waitList, out uintptr) (int32, error) {
	idle := c.queue != nil && !c.queue.busy && list.count == 0
	direct := len(w.unresolved) == 0 && t.unit <= w.opts.Ring.Area()/4
	if direct && (idle || alone(c.m)) && t.total > directWrite {
		return w.writeDirect(c, t, list, out)
	}
	block, err := w.gather(c)
	switch {
	case err != nil:
		return 0, err
	case block != nil:
		return w.writeStaged(c, t, block, list, out), nil
	case direct && c.status == clOutOfHostMemory:
		c.status = clSuccess
		return w.writeDirect(c, t, list, out)
	}
	w.unsubmit()
	return c.status, nil
}

// writeDirect hands ring memory to the driver.
func (w *Worker) writeDirect(c *call, t transfer, list waitList, out uintptr) (int32, error) {
	defer w.unsubmit() // it is done when this is
	w.flush()          // what the wait list names may be in other queues
	write := w.writePieces
	if w.maps(c.queue, &t) {
		write = w.writeMapped
	}
	status, err := write(&t, list, out)
	if err != nil || status != clSuccess {
		return status, err
	}
	if c.event != 0 {
		w.addEvent(c, uintptr(word(c.eventOut)))
	}
	if c.queue != nil && c.queue.inOrder {
		w.idle(c.queue)
	}
	return clSuccess, nil
}

func (w *Worker) writePieces(t *transfer, list waitList, out uintptr) (int32, error) {
	for at := uint64(0); ; {
		p, err := w.in.NextBulkOf(t.unit)
		if errors.Is(err, io.EOF) {
			return clSuccess, nil
		}
		if err != nil {
			return 0, err
		}
		event := out
		if w.in.BulkLeft() > 0 {
			event = 0
		}
		if status := t.move(driver.Address(p), at, len(p), clTrue, list.count, list.list, event); status != clSuccess {
			return status, nil
		}
		list = waitList{}
		at += uint64(len(p))
	}
}

// writeStaged lets the driver take the data from where it was copied to.
func (w *Worker) writeStaged(c *call, t transfer, block []byte, list waitList, out uintptr) int32 {
	item := &pending{queue: c.queue, block: block, id: c.event}
	if out == 0 {
		out, item.owned = c.newEvent(), true
	}
	status := t.move(driver.Address(block), 0, len(block), clFalse, list.count, list.list, out)
	if status != clSuccess {
		w.staging.put(block)
		w.unsubmit()
		return status
	}
	w.track(c, item)
	return clSuccess
}
