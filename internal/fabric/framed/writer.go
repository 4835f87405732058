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
}

// yieldStreams is the number of open streams from which on yieldToSenders yields. With fewer
// streams, the goroutine that runs next is more likely a long computation than a sender.
const yieldStreams = 4

// burstBytes is the number of bytes of a burst that are queued before its sender writes them:
// nearly a TLS record.
const burstBytes = 15 << 10

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
	if len(b) <= 16<<10 { // one record, one system call
		_, err := w.conn.rw.Write(b)
		return err
	}
	w.conn.socket.buffer()
	_, err := w.conn.rw.Write(b)
	if e := w.conn.socket.flush(); err == nil {
		err = e
	}
	return err
}

// sendSmall queues frames and ensures that they are written.
func (w *frameWriter) sendSmall(fill func([]byte) []byte) {
	if w.queue.add(fill) {
		w.flushClaimed()
	}
}

// sendLarge writes one DATA frame from the caller's slices, after all queued frames.
func (w *frameWriter) sendLarge(s *Stream, prefix, p []byte) error {
	if !w.waitReady() {
		return w.conn.err
	}
	w.lock.lock(s.out.class())
	defer w.lock.unlock()
	b := header{frameData, len(prefix) + len(p), s.id}.append(w.queue.dequeueAll())
	b = append(b, prefix...)
	w.conn.socket.buffer()
	_, err := w.conn.rw.Write(b)
	if err == nil {
		_, err = w.conn.rw.Write(p)
	}
	if e := w.conn.socket.flush(); err == nil {
		err = e
	}
	w.queue.putBack(b, false)
	if err != nil {
		w.conn.fail(unreachable(err))
		return w.conn.err
	}
	return nil
}

// sendPiece queues a small piece, and ensures that it is written: by the caller or, for a piece of
// a burst, by the flush loop together with the pieces that follow, until a TLS record is full.
func (w *frameWriter) sendPiece(id uint32, p Piece, burst bool) error {
	q := &w.queue
	q.mu.Lock()
	for len(q.pending) >= queueBlock && !q.ended {
		q.spaceFreed.Wait()
	}
	mine := false
	if !q.ended {
		q.appendPiece(id, &p)
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
