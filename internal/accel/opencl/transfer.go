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
	mem   uintptr
	place *place // of a contiguous part of a buffer
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
	return transfer{mem: mem, place: &place{queue, offset}, total: size, unit: 1, move: func(ptr uintptr, at uint64, n int, blocking, nWaits, waits, event uintptr) int32 {
		return int32(w.drv.Call(fn, queue, mem, blocking, uintptr(offset+at), uintptr(n), ptr, nWaits, waits, event))
	}}
}

// spanTransfer moves the boxes of s; pitches stand between region and pointer.
func (w *Worker) spanTransfer(c *call, mem uintptr, s span, call func(origin, region, ptr, blocking, nWaits, waits, event uintptr) int32) transfer {
	origin, region := c.memory(24), c.memory(24)
	return transfer{mem: mem, total: s.bytes(), unit: int(min(max(s.row, 1), 1<<40)), move: func(ptr uintptr, at uint64, n int, blocking, nWaits, waits, event uintptr) int32 {
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
	return w.spanTransfer(c, mem, s, func(origin, region, ptr, blocking, nWaits, waits, event uintptr) int32 {
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
	return w.spanTransfer(c, handle, s, func(origin, region, ptr, blocking, nWaits, waits, event uintptr) int32 {
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

// track watches over a command that was submitted with its event in eventOut.
func (w *Worker) track(c *call, item *pending) {
	item.event = uintptr(word(c.eventOut))
	id := c.event
	if id != 0 {
		w.enter(c, kindEvent, id, item.event, clSuccess)
	}
	c.event = 0 // it is taken care of
	w.submitted(c)
	c.event = id
	item.count()
	w.pending.add(item)
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

// A stream is a read that goes straight from the driver into the ring.
type stream struct {
	w        *Worker
	transfer transfer
	lone     bool   // the client has nothing else to do
	ticket   ticket // zero: nobody waits, the data goes out as a notice
	serial   uint64
	waits    waitList
	event    uintptr // where the last piece's goes, or 0
	queue    *queue
	id       uint64 // of the event
}

// pieceSize is the most that goes out at a time: small enough to stay in a core's
// cache and to keep the client busy with the next piece, large enough that a
// driver call a piece does not matter.
const pieceSize = 512 << 10

// errOvertaken holds a first piece back: something has to be sent before it.
var errOvertaken = errors.New("something else goes first")

type errStatus int32

func (e errStatus) Error() string { return statusError("transfer", int32(e)).Error() }

// run sends the data piece by piece. What the client could conclude from them is
// sent before. The status is that of the piece that failed: nothing has been sent
// since the one before it.
func (s *stream) run() (int32, error) {
	t := &s.transfer
	if s.w.maps(s.queue, t) {
		return s.runMapped()
	}
	if status := s.wait(); status != clSuccess {
		return status, nil
	}
	most := max(t.unit, min(pieceSize, s.w.opts.Ring.Area()/4)/t.unit*t.unit)
	for at := uint64(0); at < t.total; {
		n := int(min(t.total-at, uint64(most)))
		err := s.piece(at, n)
		if failed, ok := errors.AsType[errStatus](err); ok {
			return int32(failed), nil
		}
		if err != nil {
			return 0, err
		}
		at += uint64(n)
	}
	return clSuccess, nil
}

// wait waits for what the read has to wait for while others may still send:
// other threads' answers, and what a kernel prints, who may wait for that.
func (s *stream) wait() int32 {
	if s.lone && !s.w.output.wanted.Load() || !s.queue.inOrder && s.waits.count == 0 {
		return clSuccess
	}
	frame := s.w.frames.get()
	defer s.w.frames.put(frame)
	out, err := frame.Bytes(8)
	if err != nil {
		return clOutOfHostMemory
	}
	status := int32(s.w.drv.Call(fnClEnqueueMarkerWithWaitList, s.queue.handle, s.waits.count, s.waits.list, driver.Address(out)))
	if status != clSuccess {
		return status
	}
	marker := uintptr(word(out))
	s.w.drv.Call(fnClFlush, s.queue.handle)
	status = s.w.waitFor(marker)
	s.w.drv.Call(fnClReleaseEvent, marker)
	s.waits = waitList{}
	return status
}

func (s *stream) piece(at uint64, n int) error {
	last := at+uint64(n) == s.transfer.total
	h, body := s.head(clSuccess)
	if !last {
		h.Flags |= session.More
	}
	var saved []byte
	fill := func(p []byte) error {
		if saved != nil {
			copy(p, saved)
			return nil
		}
		event := s.event
		if !last {
			event = 0
		}
		status := s.transfer.move(driver.Address(p), at, n, clTrue, s.waits.count, s.waits.list, event)
		if status != clSuccess {
			return errStatus(status)
		}
		s.waits = waitList{}
		if at == 0 && (s.w.pending.count.Load() > 0 || s.w.outputWaits()) {
			saved = append([]byte{}, p...)
			return errOvertaken
		}
		return nil
	}
	err := s.w.out.Piece(h, body, n, fill)
	if !errors.Is(err, errOvertaken) {
		return err
	}
	if err := s.w.synchronised(); err != nil {
		return err
	}
	return s.w.out.Piece(h, body, n, fill)
}

// head begins a message of the read.
func (s *stream) head(status int32) (session.Header, []byte) {
	if s.ticket.call != 0 {
		return s.ticket.header(status), nil
	}
	return session.Header{Op: opData}, (&argsData{Serial: s.serial, Status: status}).encode(nil)
}

// fail ends the read.
func (s *stream) fail(status int32) error {
	h, body := s.head(status)
	return s.w.out.Send(h, body)
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
