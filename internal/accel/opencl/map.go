package opencl

import (
	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// Devices that share the host's memory return a buffer's own memory when it is mapped. A large
// transfer then needs no thread of the driver: the current goroutine copies between ring and
// buffer, which saves a context switch per piece.

// shouldMap reports whether a transfer should map its buffer. The event of a mapped transfer
// has no meaningful times, and on an out-of-order queue the unmap could come after commands
// that depend on it.
func (mv *mover) shouldMap(q *queue, t *transfer) bool {
	return mv.device.unified && t.place != nil && t.total >= directRead && q != nil && q.inOrder && !q.profiling
}

// mapBuffer maps the transfer's part of the buffer once the wait list is complete.
func (mv *mover) mapBuffer(t *transfer, flags uintptr, waits waitList) ([]byte, int32) {
	frame := mv.frames.get()
	defer mv.frames.put(frame)
	status, err := frame.Bytes(8)
	if err != nil {
		return nil, clOutOfHostMemory
	}
	p := mv.drv.Call(fnClEnqueueMapBuffer, t.place.queue, t.mem, clTrue, flags, uintptr(t.place.offset), uintptr(t.total),
		waits.count, waits.list, 0, driver.Address(status))
	if failed := int32(uint32(firstWord(status))); failed != clSuccess || p == 0 {
		return nil, min(failed, clOutOfResources)
	}
	return driver.Bytes(p, int(t.total)), clSuccess
}

func (mv *mover) unmapBuffer(t *transfer, mapped []byte, event uintptr) int32 {
	status := int32(mv.drv.Call(fnClEnqueueUnmapMemObject, t.place.queue, t.mem, driver.Address(mapped), 0, 0, event))
	if status == clSuccess {
		mv.drv.Call(fnClFlush, t.place.queue)
	}
	return status
}

// runMapped copies the data from the buffer into the ring.
func (s *stream) runMapped() (int32, error) {
	t := &s.transfer
	mapped, status := s.reads.mover.mapBuffer(t, mapRead, s.waits)
	if status != clSuccess {
		return status, nil
	}
	if s.reads.events.pending.count.Load() > 0 || s.reads.output.pending() {
		if err := s.reads.events.synchronize(); err != nil {
			return 0, err
		}
	}
	for rest := mapped; len(rest) > 0; {
		n := min(len(rest), pieceSize, s.reads.mover.area/4)
		last := n == len(rest)
		h, body := s.head(clSuccess)
		if !last {
			h.Flags |= session.More
		}
		if err := s.reads.client.out.Piece(h, body, n, func(p []byte) error { copy(p, rest); return nil }); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	// The reply is sent, but the client's next message is still to come.
	if status := s.reads.mover.unmapBuffer(t, mapped, s.event); status != clSuccess {
		return status, statusError("end of a mapping", status)
	}
	return clSuccess, nil
}

// bufferPart is the contiguous part of a buffer that a transfer copies.
type bufferPart struct {
	queue  uintptr
	offset uint64
}

// The map_flags of clEnqueueMapBuffer.
const (
	mapRead  = 1 << 0
	mapWrite = 1 << 1
)
