package framed

import (
	"sync"
	"sync/atomic"
	"time"
)

// sendSide sends one stream's bytes as frames, within the credit that the peer has granted. The
// stream's mu guards its fields, except turn and priority.
type sendSide struct {
	stream *Stream
	turn   sync.Mutex // held by the goroutine that writes to the stream

	credit   int
	closed   bool
	err      error
	priority atomic.Int32
	lastSend time.Time // when the last small piece was sent; guarded by turn
}

// send writes p and, with last set, half-closes the stream.
func (w *sendSide) send(p []byte, last bool) (sent int, err error) {
	w.turn.Lock()
	defer w.turn.Unlock()
	return w.write(Piece{Data: p, End: last})
}

// write sends a piece as one or more frames. Locks: turn is held.
func (w *sendSide) write(p Piece) (sent int, err error) {
	class := w.class()
	if len(p.Prefix)+len(p.Data) <= maxQueued {
		class = -1
	} else {
		w.stream.conn.out.lock.announce(class, 1)
		defer w.stream.conn.out.lock.announce(class, -1)
	}
	for len(p.Prefix)+len(p.Data) > 0 {
		n, err := w.acquireCredit(min(len(p.Prefix)+len(p.Data), maxSent), class)
		if err != nil {
			return sent, err
		}
		prefix, data := p.cut(n)
		var tail []byte
		if len(p.Prefix)+len(p.Data) == 0 {
			tail = w.takeTail(&p)
		}
		if err := w.stream.conn.out.sendFrame(w.stream, prefix, data, tail, p.endSent); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, w.writeRest(p)
}

// maxSent bounds the payload of a frame that this side sends: with its header it fills whole TLS
// records.
const maxSent = maxData - headerSize

// maxTail is the longest suffix in bytes that leaves in the write of the data before it.
const maxTail = 1 << 10

// takeTail removes the suffix and the end from p, and returns their frames, which leave in the same
// write as the last data. It returns nil if there is no credit for the suffix.
func (w *sendSide) takeTail(p *Piece) (frames []byte) {
	if n := len(p.Suffix); n > maxTail || n > 0 && !w.tryTakeCredit(n) {
		return nil
	} else if n > 0 {
		frames = append(header{frameData, n, w.stream.id}.append(frames), p.Suffix...)
		p.Suffix = nil
	}
	if p.End {
		frames = w.appendEnd(frames)
		p.endSent = true
	}
	return frames
}

// writeRest sends what no frame of the data has taken along: the suffix and the end.
func (w *sendSide) writeRest(p Piece) error {
	switch {
	case len(p.Suffix) > 0:
		_, err := w.write(Piece{Data: p.Suffix, End: p.End})
		return err
	case p.endSent:
		w.stream.update(func() { w.closed = true })
		return nil
	case p.End:
		return w.sendEnd()
	}
	return w.writable()
}

func (w *sendSide) writable() error {
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	return w.failure()
}

// class returns the stream's class in the connection's priorityLock.
func (w *sendSide) class() int { return int(w.priority.Load()) + 1 }

func (w *sendSide) appendEnd(b []byte) []byte { return header{frameEnd, 0, w.stream.id}.append(b) }

// queueEnd is appendEnd for the frames that leave next.
func (w *sendSide) queueEnd(b []byte) []byte {
	w.stream.endDirection(outEnded)
	return w.appendEnd(b)
}

// acquireCredit waits for credit and takes up to most bytes of it. A caller that has announced
// frames of a class withdraws the announcement while it waits; class -1: it has announced none.
func (w *sendSide) acquireCredit(most, class int) (int, error) {
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	if class >= 0 && w.credit == 0 {
		w.stream.conn.out.lock.announce(class, -1)
		defer w.stream.conn.out.lock.announce(class, 1)
	}
	for w.credit == 0 && w.failure() == nil {
		w.stream.changed.Wait()
	}
	if err := w.failure(); err != nil {
		return 0, err
	}
	w.stream.openPending = false
	n := min(most, w.credit)
	w.credit -= n
	return n, nil
}

func (w *sendSide) failure() error {
	switch {
	case w.err != nil:
		return w.err
	case w.closed:
		return ErrClosed
	}
	return nil
}

// sendParts sends a piece that needs several frames.
func (w *sendSide) sendParts(p Piece) error {
	w.turn.Lock()
	defer w.turn.Unlock()
	_, err := w.write(p)
	return err
}

// sendOne sends a piece of n bytes that may leave together with other pieces: those of a burst are
// queued. Locks: turn is held.
func (w *sendSide) sendOne(p Piece, n int) error {
	burst := time.Since(w.lastSend) < w.stream.conn.o.burstGap
	defer func() { w.lastSend = time.Now() }()
	if n > maxQueued && (!burst || !w.mayGather(n)) || !w.tryTakeCredit(n) {
		_, err := w.write(p)
		return err
	}
	if err := w.stream.conn.out.sendPiece(w.stream, p, burst); err != nil {
		return err
	}
	if p.End {
		w.stream.update(func() { w.closed = true })
	}
	return nil
}

// mayGather reports whether a piece of n bytes may be queued, although it is not small. Queued
// frames go before all others, so the pieces of a stream of low priority are not queued.
func (w *sendSide) mayGather(n int) bool {
	return w.priority.Load() >= int32(Normal) && w.stream.conn.out.queue.size()+n <= burstBytes
}

// tryTakeCredit takes credit for n bytes if there is enough.
func (w *sendSide) tryTakeCredit(n int) bool {
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	if w.credit < n || w.failure() != nil {
		return false
	}
	w.stream.openPending = false
	w.credit -= n
	return true
}

func (w *sendSide) sendEnd() error {
	w.stream.mu.Lock()
	err := w.failure()
	ended := w.closed
	w.stream.openPending = false
	w.stream.mu.Unlock()
	if err != nil {
		if ended {
			return nil
		}
		return err
	}
	w.stream.conn.out.sendSmall(w.queueEnd)
	w.stream.update(func() { w.closed = true })
	return nil
}
