package opencl

import (
	"errors"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/accel/session"
)

// stream is a read that the driver writes directly into the ring.
type stream struct {
	reads    *reads
	transfer transfer
	alone    bool   // the client waits for nothing else
	ticket   ticket // zero: the read is not blocking, and the data is sent as a notice
	serial   uint64
	waits    waitList
	event    uintptr // address for the last piece's event, or 0
	queue    *queue
	id       uint64 // of the event
}

// pieceSize is the largest piece that is sent at a time: small enough to stay in a core's cache and
// to keep the client busy with the next piece, large enough that one driver call per piece does not
// matter.
const pieceSize = 512 << 10

// errOthersFirst stops a first piece: notices about earlier commands must be sent before it.
var errOthersFirst = errors.New("something else goes first")

type errStatus int32

func (e errStatus) Error() string { return statusError("transfer", int32(e)).Error() }

// run sends the data piece by piece, after the notices of everything that the client could conclude
// from it. The status is that of the piece that failed: nothing was sent after the piece before it.
func (s *stream) run() (int32, error) {
	t := &s.transfer
	if s.reads.mover.shouldMap(s.queue, t) {
		return s.runMapped()
	}
	if status := s.wait(); status != clSuccess {
		return status, nil
	}
	most := max(t.unit, min(pieceSize, s.reads.mover.area/4)/t.unit*t.unit)
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

// wait waits for the read's wait list while other goroutines may still send: the answers to other
// threads, and kernels' output, on which the wait list may depend.
func (s *stream) wait() int32 {
	if s.alone && !s.reads.output.wanted.Load() || !s.queue.inOrder && s.waits.count == 0 {
		return clSuccess
	}
	frame := s.reads.frames.get()
	defer s.reads.frames.put(frame)
	out, err := frame.Bytes(8)
	if err != nil {
		return clOutOfHostMemory
	}
	status := int32(s.reads.drv.Call(fnClEnqueueMarkerWithWaitList, s.queue.handle, s.waits.count, s.waits.list, driver.Address(out)))
	if status != clSuccess {
		return status
	}
	marker := uintptr(firstWord(out))
	s.reads.drv.Call(fnClFlush, s.queue.handle)
	status = s.reads.events.waitFor(marker)
	s.reads.events.failed.release(marker)
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
		if at == 0 && (s.reads.events.pending.count.Load() > 0 || s.reads.output.pending()) {
			saved = append([]byte{}, p...)
			return errOthersFirst
		}
		return nil
	}
	err := s.reads.client.out.Piece(h, body, n, fill)
	if !errors.Is(err, errOthersFirst) {
		return err
	}
	if err := s.reads.events.synchronize(); err != nil {
		return err
	}
	return s.reads.client.out.Piece(h, body, n, fill)
}

// head returns the header and body of a message of the read.
func (s *stream) head(status int32) (session.Header, []byte) {
	if s.ticket.call != 0 {
		return s.ticket.header(status), nil
	}
	return session.Header{Op: opData}, (&argsData{Serial: s.serial, Status: status}).encode(nil)
}

// fail ends the read with a status.
func (s *stream) fail(status int32) error {
	h, body := s.head(status)
	return s.reads.client.out.Send(h, body)
}
