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

// send writes prefix and p and, with last set, half-closes the stream.
func (w *sendSide) send(prefix, p []byte, last bool) (sent int, err error) {
	w.turn.Lock()
	defer w.turn.Unlock()
	return w.write(prefix, p, last)
}

// write is send with turn held.
func (w *sendSide) write(prefix, p []byte, last bool) (sent int, err error) {
	class := w.class()
	if len(prefix)+len(p) <= maxQueued {
		class = -1
	} else {
		w.stream.conn.out.lock.announce(class, 1)
		defer w.stream.conn.out.lock.announce(class, -1)
	}
	for len(prefix)+len(p) > 0 {
		n, err := w.acquireCredit(min(len(prefix)+len(p), maxData), class)
		if err != nil {
			return sent, err
		}
		first := prefix[:min(n, len(prefix))]
		n -= len(first)
		prefix = prefix[len(first):]
		end := last && n == len(p) && len(prefix) == 0
		if err := w.sendFrame(first, p[:n], end); err != nil {
			return sent, err
		}
		sent, p = sent+len(first)+n, p[n:]
		if end {
			w.stream.mu.Lock()
			w.closed = true
			w.stream.updatedUnlock()
			return sent, nil
		}
	}
	if last {
		return sent, w.sendEnd()
	}
	return sent, w.writable()
}

func (w *sendSide) writable() error {
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	return w.failure()
}

// sendFrame sends one frame, and END after it when end is set.
func (w *sendSide) sendFrame(prefix, p []byte, end bool) error {
	n := len(prefix) + len(p)
	if n > maxQueued {
		if err := w.stream.conn.out.sendLarge(w.stream, prefix, p); err != nil {
			return err
		}
		if end {
			w.stream.conn.out.sendSmall(w.appendEnd)
		}
		return w.stream.conn.Err()
	}
	w.stream.conn.out.sendSmall(func(b []byte) []byte {
		b = append(append(header{frameData, n, w.stream.id}.append(b), prefix...), p...)
		if end {
			b = w.appendEnd(b)
		}
		return b
	})
	return w.stream.conn.Err()
}

// class returns the stream's class in the connection's priorityLock.
func (w *sendSide) class() int { return int(w.priority.Load()) + 1 }

func (w *sendSide) appendEnd(b []byte) []byte { return header{frameEnd, 0, w.stream.id}.append(b) }

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
	return w.sendTurn(p)
}

// sendTurn is sendParts with turn held.
func (w *sendSide) sendTurn(p Piece) error {
	if _, err := w.write(p.Prefix, p.Data, p.End && len(p.Suffix) == 0); err != nil || len(p.Suffix) == 0 {
		return err
	}
	_, err := w.write(nil, p.Suffix, p.End)
	return err
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
	w.stream.conn.out.sendSmall(w.appendEnd)
	w.stream.update(func() { w.closed = true })
	return nil
}
