package opencl

import (
	"errors"
	"fmt"
	"io"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// writes executes the calls that copy from the client to the device.
type writes struct {
	caller     *caller
	client     *client
	staging    *staging
	hostMemory *hostMemory
	events     *events
	queues     *queues
	mover      *mover
}

// directWrite is the size from which a write passes the ring's memory to the driver, blocking:
// copying a smaller write to staging memory is cheaper and keeps the device working.
const directWrite = 64 << 10

func (wr *writes) doClEnqueueWriteBuffer(m *message, a *argsClEnqueueWriteBuffer) error {
	c := wr.caller.begin(m)
	queue, mem := c.handle(kindQueue, a.CommandQueue), c.handle(kindMem, a.Buffer)
	return wr.write(c, wr.mover.bufferTransfer(fnClEnqueueWriteBuffer, queue, mem, a.Offset, a.Size), a.EventWaitList, a.Event)
}

func (wr *writes) doClEnqueueWriteBufferRect(m *message, a *argsClEnqueueWriteBufferRect) error {
	c := wr.caller.begin(m)
	queue, mem := c.handle(kindQueue, a.CommandQueue), c.handle(kindMem, a.Buffer)
	t, err := wr.mover.rectTransfer(c, fnClEnqueueWriteBufferRect, queue, mem, a.BufferOrigin, a.Region, a.BufferRowPitch, a.BufferSlicePitch)
	if err != nil {
		return malformed(m, err)
	}
	return wr.write(c, t, a.EventWaitList, a.Event)
}

func (wr *writes) doClEnqueueWriteImage(m *message, a *argsClEnqueueWriteImage) error {
	c := wr.caller.begin(m)
	t, err := wr.mover.imageTransfer(c, fnClEnqueueWriteImage, c.handle(kindQueue, a.CommandQueue), a.Image, a.Origin, a.Region)
	if err != nil {
		return malformed(m, err)
	}
	return wr.write(c, t, a.EventWaitList, a.Event)
}

// write executes a write whose data is the message's bulk.
func (wr *writes) write(c *call, t transfer, waits []uint64, event uint64) error {
	list := c.waitList(waits)
	out := c.clientEvent(event)
	if c.status == clSuccess && c.m.Bulk != t.total {
		return malformed(c.m, fmt.Errorf("%d bytes for a write of %d", c.m.Bulk, t.total))
	}
	if c.status != clSuccess {
		return wr.caller.finish(c, c.status)
	}
	if !wr.caller.submit(c) {
		return wr.caller.finish(c, c.status)
	}
	if t.total == 0 {
		status := t.move(0, 0, 0, clFalse, list.count, list.list, out)
		if status == clSuccess {
			wr.caller.recordSubmit(c)
		} else {
			wr.caller.cancelSubmit()
		}
		return wr.caller.finish(c, status)
	}
	status, err := wr.writeBulk(c, t, list, out)
	if err != nil {
		return err
	}
	return wr.caller.finish(c, status)
}

// writeBulk chooses how the data reaches the driver. Passing it directly from the ring is the
// fastest, but blocks until the command's wait list is complete: the data of a client with several
// threads is copied to staging memory while there is some.
func (wr *writes) writeBulk(c *call, t transfer, list waitList, out uintptr) (int32, error) {
	idle := c.queue != nil && !c.queue.busy && list.count == 0
	direct := len(wr.events.unresolved) == 0 && t.unit <= wr.mover.area/4
	if direct && (idle || alone(c.m)) && t.total > directWrite {
		return wr.writeDirect(c, t, list, out)
	}
	block, err := wr.hostMemory.gatherBulk(c)
	switch {
	case err != nil:
		return 0, err
	case block != nil:
		return wr.writeStaged(c, t, block, list, out), nil
	case direct && c.status == clOutOfHostMemory:
		c.status = clSuccess
		return wr.writeDirect(c, t, list, out)
	}
	wr.caller.cancelSubmit()
	return c.status, nil
}

// writeDirect passes ring memory to the driver.
func (wr *writes) writeDirect(c *call, t transfer, list waitList, out uintptr) (int32, error) {
	defer wr.caller.cancelSubmit() // the command is done when this function is
	wr.queues.flushAll()           // the commands of the wait list may be in other queues
	write := wr.writePieces
	if wr.mover.shouldMap(c.queue, &t) {
		write = wr.writeMapped
	}
	status, err := write(&t, list, out)
	if err != nil || status != clSuccess {
		return status, err
	}
	if c.event != 0 {
		wr.caller.addEvent(c, uintptr(firstWord(c.eventOut)))
	}
	if c.queue != nil && c.queue.inOrder {
		c.queue.markIdle()
	}
	return clSuccess, nil
}

func (wr *writes) writePieces(t *transfer, list waitList, out uintptr) (int32, error) {
	for at := uint64(0); ; {
		p, err := wr.client.in.NextBulkOf(t.unit)
		if errors.Is(err, io.EOF) {
			return clSuccess, nil
		}
		if err != nil {
			return 0, err
		}
		event := out
		if wr.client.in.BulkLeft() > 0 {
			event = 0
		}
		if status := t.move(driver.Address(p), at, len(p), clTrue, list.count, list.list, event); status != clSuccess {
			return status, nil
		}
		list = waitList{}
		at += uint64(len(p))
	}
}

// writeMapped copies the message's bulk from the ring into the buffer.
func (wr *writes) writeMapped(t *transfer, list waitList, out uintptr) (int32, error) {
	mapped, status := wr.mover.mapBuffer(t, mapWrite, list)
	if status != clSuccess {
		return status, nil
	}
	for at := 0; ; {
		p, err := wr.client.in.NextBulk()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		at += copy(mapped[at:], p)
	}
	return wr.mover.unmapBuffer(t, mapped, out), nil
}

// writeStaged enqueues a write whose data is in staging memory.
func (wr *writes) writeStaged(c *call, t transfer, block []byte, list waitList, out uintptr) int32 {
	item := &pendingCommand{queue: c.queue, block: block, id: c.event}
	if out == 0 {
		out, item.owned = c.newEvent(), true
	}
	status := t.move(driver.Address(block), 0, len(block), clFalse, list.count, list.list, out)
	if status != clSuccess {
		wr.staging.put(block)
		wr.caller.cancelSubmit()
		return status
	}
	wr.caller.track(c, item)
	return clSuccess
}
