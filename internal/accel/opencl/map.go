package opencl

import (
	"errors"
	"io"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// Devices whose memory is the host's give a buffer's own memory when it is mapped.
// A large transfer then needs no thread of the driver: the goroutine at hand copies
// between ring and buffer, which saves a change of threads for each piece.

// A place is what a transfer moves bytes to or from: a part of a buffer.
type place struct {
	queue  uintptr
	offset uint64
}

// mapFlags of clEnqueueMapBuffer.
const (
	mapRead  = 1 << 0
	mapWrite = 1 << 1
)

// maps reports whether a transfer should map its buffer. The event of a mapped
// transfer tells nothing of how long it took, and on a queue without order the end
// of the mapping could come after what depends on it.
func (w *Worker) maps(q *queue, t *transfer) bool {
	return w.unified && t.place != nil && t.total >= directRead && q != nil && q.inOrder && !q.profiling
}

// mapIn maps the transfer's part of the buffer, after all that it has to wait for.
func (w *Worker) mapIn(t *transfer, flags uintptr, waits waitList) ([]byte, int32) {
	frame := w.frames.get()
	defer w.frames.put(frame)
	status, err := frame.Bytes(8)
	if err != nil {
		return nil, clOutOfHostMemory
	}
	p := w.drv.Call(fnClEnqueueMapBuffer, t.place.queue, t.mem, clTrue, flags, uintptr(t.place.offset), uintptr(t.total),
		waits.count, waits.list, 0, driver.Address(status))
	if failed := int32(uint32(word(status))); failed != clSuccess || p == 0 {
		return nil, min(failed, clOutOfResources)
	}
	return driver.Bytes(p, int(t.total)), clSuccess
}

func (w *Worker) mapOut(t *transfer, mapped []byte, event uintptr) int32 {
	status := int32(w.drv.Call(fnClEnqueueUnmapMemObject, t.place.queue, t.mem, driver.Address(mapped), 0, 0, event))
	if status == clSuccess {
		w.drv.Call(fnClFlush, t.place.queue)
	}
	return status
}

// writeMapped copies the message's bulk from the ring into the buffer.
func (w *Worker) writeMapped(t *transfer, list waitList, out uintptr) (int32, error) {
	mapped, status := w.mapIn(t, mapWrite, list)
	if status != clSuccess {
		return status, nil
	}
	for at := 0; ; {
		p, err := w.in.NextBulk()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		at += copy(mapped[at:], p)
	}
	return w.mapOut(t, mapped, out), nil
}

// runMapped copies the data from the buffer into the ring.
func (s *stream) runMapped() (int32, error) {
	t := &s.transfer
	mapped, status := s.w.mapIn(t, mapRead, s.waits)
	if status != clSuccess {
		return status, nil
	}
	if s.w.pending.count.Load() > 0 || s.w.outputWaits() {
		if err := s.w.synchronised(); err != nil {
			return 0, err
		}
	}
	for rest := mapped; len(rest) > 0; {
		n := min(len(rest), pieceSize, s.w.opts.Ring.Area()/4)
		last := n == len(rest)
		h, body := s.head(clSuccess)
		if !last {
			h.Flags |= session.More
		}
		if err := s.w.out.Piece(h, body, n, func(p []byte) error { copy(p, rest); return nil }); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	// The reply is gone, but what the client sends next is still to come.
	if status := s.w.mapOut(t, mapped, s.event); status != clSuccess {
		return status, statusError("end of a mapping", status)
	}
	return clSuccess, nil
}
