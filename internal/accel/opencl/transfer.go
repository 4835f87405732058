package opencl

import (
	"errors"
	"fmt"
	"io"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

const (
	// directWrite is the size from which a write goes straight from the ring
	// into the driver, blocking: smaller ones are cheaper to copy aside, so
	// that the device keeps working.
	directWrite = 64 << 10
	// directRead is the size from which a read goes straight from the driver
	// into the ring even if other threads of the client must wait meanwhile.
	directRead = 1 << 20
)

// A transfer is a command that moves bytes between ring and device. Pieces of it
// can be moved one after the other.
type transfer struct {
	total uint64
	unit  int // pieces are multiples of this
	// move enqueues a piece: nWaits and waits hold the first part back, event is
	// made by the last.
	move func(ptr uintptr, offset uint64, size int, blocking, nWaits, waits, event uintptr) int32
}

// A span is a box of rows in a buffer or image.
type span struct {
	row            uint64 // bytes
	origin, region [3]uint64
}

func (s *span) bytes() uint64 { return product(s.row, s.region[1], s.region[2]) }

// each cuts size bytes at offset, whole rows both, into boxes.
func (s *span) each(offset uint64, size int, box func(origin, region [3]uint64, at uint64, last bool) int32) int32 {
	if s.bytes() == 0 {
		return box(s.origin, s.region, 0, true) // the driver has a word for it
	}
	height := s.region[1]
	first, rows, at := offset/s.row, uint64(size)/s.row, uint64(0)
	for rows > 0 {
		y, z := first%height, first/height
		origin := [3]uint64{s.origin[0], s.origin[1] + y, s.origin[2] + z}
		region := [3]uint64{s.region[0], min(height-y, rows), 1}
		if y == 0 && rows >= height {
			region[2] = rows / height
			region[1] = height
		}
		n := region[1] * region[2]
		rows, first = rows-n, first+n
		if status := box(origin, region, at, rows == 0); status != clSuccess {
			return status
		}
		at += n * s.row
	}
	return clSuccess
}

func (w *Worker) bufferTransfer(fn int, queue, mem uintptr, offset, size uint64) transfer {
	return transfer{total: size, unit: 1, move: func(ptr uintptr, at uint64, n int, blocking, nWaits, waits, event uintptr) int32 {
		return int32(w.drv.Call(fn, queue, mem, blocking, uintptr(offset+at), uintptr(n), ptr, nWaits, waits, event))
	}}
}

// spanTransfer moves the boxes of s; pitches stand between region and pointer.
func (w *Worker) spanTransfer(c *call, s span, call func(origin, region, ptr, blocking, nWaits, waits, event uintptr) int32) transfer {
	origin, region := c.memory(24), c.memory(24)
	return transfer{total: s.bytes(), unit: int(min(s.row, 1<<40)), move: func(ptr uintptr, at uint64, n int, blocking, nWaits, waits, event uintptr) int32 {
		return s.each(at, n, func(o, r [3]uint64, skip uint64, last bool) int32 {
			putWords(origin, o[:])
			putWords(region, r[:])
			out := event
			if !last {
				out = 0
			}
			status := call(driver.Address(origin), driver.Address(region), ptr+uintptr(skip), blocking, nWaits, waits, out)
			nWaits, waits = 0, 0
			return status
		})
	}}
}

func (w *Worker) rectTransfer(c *call, fn int, queue, mem uintptr, origin, region []uint64, rowPitch, slicePitch uint64) (transfer, error) {
	if len(origin) != 3 || len(region) != 3 {
		return transfer{}, errTriple
	}
	zero := c.memory(24)
	s := span{row: region[0], origin: [3]uint64(origin), region: [3]uint64(region)}
	return w.spanTransfer(c, s, func(origin, region, ptr, blocking, nWaits, waits, event uintptr) int32 {
		return int32(w.drv.Call(fn, queue, mem, blocking, origin, driver.Address(zero), region,
			uintptr(rowPitch), uintptr(slicePitch), 0, 0, ptr, nWaits, waits, event))
	}), nil
}

func (w *Worker) imageTransfer(c *call, fn int, queue uintptr, image uint64, origin, region []uint64) (transfer, error) {
	if len(origin) != 3 || len(region) != 3 {
		return transfer{}, errTriple
	}
	handle := c.handle(kindMem, image)
	element, ok := w.images[image]
	if !ok {
		c.fail(invalid[kindMem])
	}
	s := span{row: product(region[0], element), origin: [3]uint64(origin), region: [3]uint64(region)}
	return w.spanTransfer(c, s, func(origin, region, ptr, blocking, nWaits, waits, event uintptr) int32 {
		return int32(w.drv.Call(fn, queue, handle, blocking, origin, region, 0, 0, ptr, nWaits, waits, event))
	}), nil
}

var errTriple = errors.New("origin or region without three numbers")

func putWords(b []byte, words []uint64) {
	for i, v := range words {
		for j := range 8 {
			b[8*i+j] = byte(v >> (8 * j))
		}
	}
}

// waitList is a command's wait list as the driver takes it.
type waitList struct{ count, list uintptr }

func (c *call) waitList(ids []uint64) waitList {
	return waitList{uintptr(len(ids)), c.handles(kindEvent, ids)}
}

// ---------------------------------------------------------------- writes

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
	out := c.created(kindEvent, event)
	if c.status == clSuccess && c.m.Bulk != t.total {
		return w.malformed(c.m, fmt.Errorf("%d bytes for a write of %d", c.m.Bulk, t.total))
	}
	if c.status != clSuccess {
		return w.finish(c, c.status)
	}
	if t.total == 0 {
		w.submit()
		status := t.move(0, 0, 0, clFalse, list.count, list.list, out)
		if status == clSuccess {
			w.submitted(c)
		}
		return w.finish(c, status)
	}
	status, err := w.writeBulk(c, t, list, out)
	if err != nil {
		return err
	}
	return w.finish(c, status)
}

func (w *Worker) writeBulk(c *call, t transfer, list waitList, out uintptr) (int32, error) {
	w.submit()
	idle := c.queue != nil && !c.queue.busy && list.count == 0
	canPiece := t.unit <= w.opts.Ring.Area()/4
	if len(w.unresolved) == 0 && canPiece && (idle || t.total > directWrite) {
		return w.writeDirect(c, t, list, out)
	}
	block := w.stage(int(min(t.total, 1<<40)))
	if block == nil && len(w.unresolved) == 0 && canPiece {
		return w.writeDirect(c, t, list, out)
	}
	if block != nil {
		w.staging.put(block)
	}
	return w.writeStaged(c, t, list, out)
}

// writeDirect hands ring memory to the driver, piece by piece.
func (w *Worker) writeDirect(c *call, t transfer, list waitList, out uintptr) (int32, error) {
	w.flush() // what the wait list names may be in other queues
	for at := uint64(0); ; {
		p, err := w.in.NextBulkOf(t.unit)
		if errors.Is(err, io.EOF) {
			break
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
	if c.event != 0 {
		w.addEvent(c, uintptr(word(c.eventOut)))
	}
	if c.queue != nil && c.queue.inOrder {
		c.queue.busy = false
	}
	return clSuccess, nil
}

// writeStaged copies the data aside and lets the driver take it from there.
func (w *Worker) writeStaged(c *call, t transfer, list waitList, out uintptr) (int32, error) {
	block, err := w.gather(c)
	if err != nil || block == nil {
		return c.status, err
	}
	item := &pending{queue: c.queue, block: block, id: c.event}
	if out == 0 {
		c.eventOut = c.memory(8)
		out, item.owned = driver.Address(c.eventOut), true
	}
	status := t.move(driver.Address(block), 0, len(block), clFalse, list.count, list.list, out)
	if status != clSuccess {
		w.staging.put(block)
		return status, nil
	}
	w.track(c, item)
	return clSuccess, nil
}

// track watches over a command that was submitted with its event in eventOut.
func (w *Worker) track(c *call, item *pending) {
	item.event = uintptr(word(c.eventOut))
	id := c.event
	if id != 0 {
		w.enter(c, kindEvent, id, item.event, clSuccess)
	}
	w.pending.add(item)
	c.event = 0 // it is taken care of
	w.submitted(c)
	c.event = id
}

// ---------------------------------------------------------------- reads

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
	out := c.created(kindEvent, event)
	if t.total > session.MaxBulk {
		c.fail(clInvalidValue)
	}
	if c.status != clSuccess {
		return w.failRead(c, c.status)
	}
	w.submit()
	direct := len(w.unresolved) == 0 && t.unit <= w.opts.Ring.Area()/4 && t.total > 0
	switch {
	case direct && blocking && (alone(c.m) || t.total >= directRead):
		return w.readDirect(c, t, list, out)
	case direct && !blocking && t.total >= directRead:
		return w.readDirect(c, t, list, out)
	}
	return w.readStaged(c, t, blocking, list, out)
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

// errOvertaken ends a direct read's first piece: something has to be sent before it.
var errOvertaken = errors.New("something else goes first")

type errStatus int32

func (e errStatus) Error() string { return statusError("transfer", int32(e)).Error() }

// readDirect has the driver write into the ring. What the client could conclude
// from the reply is sent before it.
func (w *Worker) readDirect(c *call, t transfer, list waitList, out uintptr) error {
	w.flush()
	var saved []byte
	fill := func(p []byte, at uint64) error {
		if at == 0 && saved != nil {
			copy(p, saved)
			return nil
		}
		event := out
		if at+uint64(len(p)) < t.total {
			event = 0
		}
		if status := t.move(driver.Address(p), at, len(p), clTrue, list.count, list.list, event); status != clSuccess {
			return errStatus(status)
		}
		list = waitList{}
		if at == 0 && (w.pending.count.Load() > 0 || w.outputWaits()) {
			saved = append([]byte{}, p...)
			return errOvertaken
		}
		return nil
	}
	started := false
	stream := func() error {
		return w.stream(c, t, func(p []byte, at uint64) error {
			err := fill(p, at)
			started = err == nil || at > 0
			return err
		})
	}
	err := stream()
	if errors.Is(err, errOvertaken) {
		if err := w.synchronised(); err != nil {
			return err
		}
		err = stream()
	}
	var failed errStatus
	switch {
	case errors.As(err, &failed) && !started:
		return w.failRead(c, int32(failed))
	case errors.As(err, &failed):
		return w.fail(c, int32(failed)) // the reply is gone: it was zeros from there on
	case err != nil:
		return err
	}
	if c.event != 0 {
		w.addEvent(c, uintptr(word(c.eventOut)))
	}
	if c.queue.inOrder {
		c.queue.busy = false
	}
	return nil
}

// stream sends the reply or the data notice of a read.
func (w *Worker) stream(c *call, t transfer, fill func(p []byte, at uint64) error) error {
	h, body := session.Header{Op: opData}, (&argsData{Serial: c.m.Serial}).encode(nil)
	if c.m.Flags&session.WantReply != 0 {
		h, body = c.ticket().header(clSuccess), nil
	}
	h.Bulk = t.total
	return w.out.Stream(h, body, t.unit, fill)
}

// readStaged enqueues the read in its place and sends the data when it is there.
func (w *Worker) readStaged(c *call, t transfer, blocking bool, list waitList, out uintptr) error {
	if t.total > 1<<40 {
		return w.failRead(c, clOutOfHostMemory)
	}
	block := w.stage(int(t.total))
	if block == nil {
		block = w.staging.get(int(t.total), true)
	}
	if block == nil {
		return w.failRead(c, clOutOfHostMemory)
	}
	item := &pending{queue: c.queue, id: c.event}
	if out == 0 {
		c.eventOut = c.memory(8)
		out, item.owned = driver.Address(c.eventOut), true
	}
	status := t.move(driver.Address(block), 0, int(t.total), clFalse, list.count, list.list, out)
	if status != clSuccess {
		w.staging.put(block)
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
	w.waits.Go(func() { w.answerRead(k, event, block) })
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
