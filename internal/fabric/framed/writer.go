package framed

import (
	"math"
	"runtime"
)

// frameWriter writes frames to the connection: small frames collected in a queue, large frames from
// their senders' slices. Each goroutine that sends also writes the frames that others have queued.
type frameWriter struct {
	conn  *Conn
	lock  priorityLock // held by the goroutine that writes to conn.rw
	queue queue
	last  []byte // for fillRecords
}

// yieldStreams is the number of open streams from which on yieldToSenders yields. With fewer
// streams, the goroutine that runs next is more likely a long computation than a sender.
const yieldStreams = 4

const (
	// burstBytes is the number of bytes of a burst that are queued before its sender writes them: a
	// system call for four TLS records costs little more than one for a single record. It bounds
	// how long a small frame waits behind a burst.
	burstBytes = 64 << 10
	// maxRecord is the largest payload of a TLS record (RFC 8446, section 5.1).
	maxRecord = 16 << 10
)

// flushBeforeRead writes pending frames before the reader waits for more of a frame. The reader
// must not block on writing: if it might block, or another goroutine writes, the flush loop writes
// them.
func (w *frameWriter) flushBeforeRead() {
	if !w.queue.hasUnclaimed() {
		return
	}
	if !w.conn.handshaken.Load() || !w.queue.claim(maxQueued) {
		w.queue.wakeIfPending()
		return
	}
	if w.conn.socket.writable() && w.lock.tryLock() {
		if !w.writePending() {
			return
		}
	}
	w.queue.unclaim()
}

// writePending writes the queued frames, and releases the lock. It reports whether frames were
// added meanwhile that the claiming goroutine has to write.
func (w *frameWriter) writePending() (more bool) {
	b := w.queue.dequeueAll()
	var err error
	if len(b) > 0 {
		err = w.writeQueued(b)
	}
	more = w.queue.putBack(b, true)
	w.lock.unlock()
	if err != nil {
		w.conn.fail(unreachable(err))
	}
	return more && err == nil
}

// flushLoop writes frames that no sender can write itself.
func (w *frameWriter) flushLoop() {
	for {
		select {
		case <-w.conn.done:
			return
		case <-w.queue.wakeup:
		}
		// The goroutine of a burst goes on meanwhile, and its frames leave in the same write.
		runtime.Gosched()
		w.flush()
	}
}

// flush writes the pending frames unless another goroutine is responsible.
func (w *frameWriter) flush() {
	if w.queue.claim(math.MaxInt) {
		w.flushClaimed()
	}
}

// flushClaimed writes the frames that the caller has claimed, and after some rounds leaves the rest
// to the flush loop.
func (w *frameWriter) flushClaimed() {
	if !w.waitReady() {
		return
	}
	w.yieldToSenders()
	for range flushRounds {
		w.lock.lock(urgent)
		if !w.writePending() {
			return
		}
	}
	w.queue.unclaim()
}

// yieldToSenders lets other goroutines add their frames to the same system call.
func (w *frameWriter) yieldToSenders() {
	if len(w.conn.ownStreams) >= yieldStreams || w.conn.peerStreams.Load() >= yieldStreams {
		runtime.Gosched()
	}
}

// waitReady waits for the end of the handshake: buffering the socket's writes would delay the
// handshake.
func (w *frameWriter) waitReady() bool {
	if w.conn.handshaken.Load() {
		return true
	}
	select {
	case <-w.conn.ready:
		return true
	case <-w.conn.done:
		return false
	}
}

func (w *frameWriter) writeQueued(b []byte) error {
	if len(b) <= maxRecord { // one record, one system call
		_, err := w.conn.rw.Write(b)
		return err
	}
	return w.writeTogether(b)
}

// sendSmall queues frames and ensures that they are written.
func (w *frameWriter) sendSmall(fill func([]byte) []byte) {
	if w.queue.add(fill) {
		w.flushClaimed()
	}
}

// sendFrame sends one DATA frame, and the frames of tail in the same write: with ends set the last
// ones of the stream.
func (w *frameWriter) sendFrame(s *Stream, prefix, p, tail []byte, ends bool) error {
	n := len(prefix) + len(p)
	if n > maxQueued {
		return w.sendLarge(s, prefix, p, tail, ends)
	}
	w.sendSmall(func(b []byte) []byte {
		if ends {
			s.endDirection(outEnded)
		}
		return append(append(append(header{frameData, n, s.id}.append(b), prefix...), p...), tail...)
	})
	return w.conn.Err()
}

// sendLarge writes one DATA frame from the caller's slices, after all queued frames, and the frames
// of tail.
func (w *frameWriter) sendLarge(s *Stream, prefix, p, tail []byte, ends bool) error {
	if !w.waitReady() {
		return w.conn.err
	}
	w.lock.lock(s.out.class())
	defer w.lock.unlock()
	if ends {
		s.endDirection(outEnded)
	}
	b := header{frameData, len(prefix) + len(p), s.id}.append(w.queue.dequeueAll())
	b = append(b, prefix...)
	if w.conn.o.TLS != nil {
		b, p, tail = w.fillRecords(b, p, tail)
	}
	err := w.writeTogether(b, p, tail)
	w.queue.putBack(b, false)
	if err != nil {
		w.conn.fail(unreachable(err))
	}
	return w.conn.Err()
}

// fillRecords copies the beginning and the end of p, so that of the three slices that it returns
// only the last ends within a TLS record: neither a header nor a tail has a record of its own.
// Locks: lock is held; the last slice is valid until it is released.
func (w *frameWriter) fillRecords(b, p, tail []byte) (first, middle, last []byte) {
	n := min((maxRecord-len(b)%maxRecord)%maxRecord, len(p))
	b, p = append(b, p[:n]...), p[n:]
	switch {
	case len(p) == 0:
		return append(b, tail...), nil, nil
	case len(tail) == 0:
		return b, p, nil
	}
	end := len(p) - len(p)%maxRecord
	w.last = append(append(w.last[:0], p[end:]...), tail...)
	return b, p[:end], w.last
}

// writeTogether writes the slices in one system call, as far as the socket's buffer allows it.
func (w *frameWriter) writeTogether(slices ...[]byte) (err error) {
	w.conn.socket.buffer()
	for _, b := range slices {
		if len(b) > 0 && err == nil {
			_, err = w.conn.rw.Write(b)
		}
	}
	if e := w.conn.socket.flush(); err == nil {
		err = e
	}
	return err
}

// sendPiece queues a piece, and ensures that it is written: by the caller or, for a piece of a burst,
// by the flush loop together with the pieces that follow, up to burstBytes.
func (w *frameWriter) sendPiece(s *Stream, p Piece, burst bool) error {
	q := &w.queue
	q.mu.Lock()
	for len(q.pending) >= queueBlock && !q.ended {
		q.spaceFreed.Wait()
	}
	mine := false
	if !q.ended {
		if p.End {
			s.endDirection(outEnded)
		}
		q.appendPiece(s.id, &p)
		burst = burst && len(q.pending) < burstBytes && !p.End
		mine = !q.claimed && !p.Later && !burst
		q.claimed = q.claimed || mine
		if burst && !q.claimed {
			q.wake()
		}
	}
	q.mu.Unlock()
	if mine {
		w.flushClaimed()
	}
	return w.conn.Err()
}
