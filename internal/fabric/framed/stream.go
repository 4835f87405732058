package framed

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
)

// A Stream is two byte streams between the ends of a connection, one each way.
type Stream struct {
	conn   *Conn
	id     uint32
	method string
	head   []byte

	mu          sync.Mutex
	changed     sync.Cond // signals changes of the fields below
	openPending bool      // the OPEN may still be in the queue
	in          receiveSide
	out         sendSide

	unregistered bool
	resetting    bool          // a RESET of this side is about to leave
	endings      atomic.Uint32 // directions that have ended for the peer's limit
}

// The directions of a stream, as bits of endings.
const (
	inEnded uint32 = 1 << iota
	outEnded
	bothEnded = inEnded | outEnded
)

// endDirection ends the count of a direction in the limit of streams of the peer. The peer may begin
// another stream as soon as it has seen both ends, so the outgoing direction ends when its last frame
// is queued, not when that has left.
func (s *Stream) endDirection(d uint32) {
	if old := s.endings.Or(d); old != bothEnded && old|d == bothEnded && !s.conn.isOwn(s.id) {
		s.conn.peerStreams.Add(-1)
	}
}

func newStream(c *Conn, id uint32, method string, head []byte) *Stream {
	s := &Stream{conn: c, id: id, method: method, head: head}
	s.changed.L = &s.mu
	s.in.stream, s.out.stream = s, s
	s.in.window = receiveWindow{conn: c, size: firstWindow, credit: firstWindow}
	s.out.credit = firstWindow
	return s
}

// Conn returns the connection that the stream belongs to.
func (s *Stream) Conn() *Conn { return s.conn }

// Method returns the name that the stream was opened with.
func (s *Stream) Method() string { return s.method }

// Header returns the bytes that the opener sent with the method. They must not be changed.
func (s *Stream) Header() []byte { return s.head }

// Read waits for at least one byte. After the peer's CloseWrite it returns io.EOF, after its Reset
// that error, in both cases once all earlier bytes are read.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.turn.Lock()
	defer s.in.turn.Unlock()
	n, grant, err := s.in.receive(p)
	if grant > 0 {
		s.conn.out.sendSmall(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) })
	}
	return n, err
}

// Flush sends the OPEN, if it has not left yet.
func (s *Stream) Flush() {
	s.mu.Lock()
	pending := s.openPending
	s.openPending = false
	s.mu.Unlock()
	if pending {
		s.conn.out.flush()
	}
}

// flushOpen sends the OPEN before this side waits.
func (s *Stream) flushOpen() {
	s.openPending = false
	s.mu.Unlock()
	s.conn.out.flush()
	s.mu.Lock()
}

// Write sends p, waiting for credit. It does not keep p.
func (s *Stream) Write(p []byte) (int, error) { return s.out.send(p, false) }

// copyPiece is the size of the buffer of ReadFrom and WriteTo: several frames, so that some arrive
// while others are written.
const copyPiece = 4 * maxData

// ReadFrom writes all bytes that it reads from r. It implements io.ReaderFrom with pieces that suit
// the wire.
func (s *Stream) ReadFrom(r io.Reader) (int64, error) { return transfer(s.Write, r.Read) }

// WriteTo reads until the peer's end and writes all bytes to w. It implements io.WriterTo.
func (s *Stream) WriteTo(w io.Writer) (int64, error) { return transfer(w.Write, s.Read) }

func transfer(write, read func([]byte) (int, error)) (total int64, err error) {
	b := make([]byte, copyPiece)
	for {
		n, err := read(b)
		if n > 0 {
			m, werr := write(b[:n])
			total += int64(m)
			if werr == nil && m < n {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return total, werr
			}
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// CloseWrite half-closes the stream. The peer reads io.EOF after the last byte.
func (s *Stream) CloseWrite() error {
	s.out.turn.Lock()
	defer s.out.turn.Unlock()
	return s.out.sendEnd()
}

// Close half-closes the stream, as CloseWrite does, and discards the bytes that were not read. A
// Write that waits for credit is aborted.
func (s *Stream) Close() error {
	if s.out.turn.TryLock() {
		_ = s.out.sendEnd()
		s.out.turn.Unlock()
	}
	s.abandon(outboard.Other, "", ErrClosed)
	return nil
}

// Reset ends both directions at once. The peer's calls return an error of err's kind with its text;
// a nil err means Close.
func (s *Stream) Reset(err error) {
	if err == nil {
		_ = s.Close()
		return
	}
	kind, text := s.errorFor(err)
	s.abandon(kind, text, ErrClosed)
}

// errorFor converts err for the peer, which adds the method itself.
func (s *Stream) errorFor(err error) (outboard.Kind, string) {
	return outboard.KindOf(err), strings.TrimPrefix(err.Error(), s.method+": ")
}

// abandon ends both directions, and resets the stream if either was open.
func (s *Stream) abandon(kind outboard.Kind, text string, local error) {
	if s.abort(local) {
		s.conn.out.sendSmall(func(b []byte) []byte { return appendError(b, frameReset, s.id, kind, text) })
		s.releaseOwn()
	}
}

// abort ends both directions, and reports whether either was open. Then the caller queues a RESET, and
// calls releaseOwn: the next stream must not be before it on the wire.
func (s *Stream) abort(local error) (tell bool) {
	s.mu.Lock()
	tell = (!s.in.eof && s.in.err == nil) || (!s.out.closed && s.out.err == nil)
	s.resetting = tell
	if s.in.err == nil {
		s.in.err = local
	}
	if s.out.err == nil {
		s.out.err = local
	}
	s.in.buffered.drop()
	if s.in.filling {
		time.AfterFunc(s.conn.o.DeadAfter, s.in.failIfFilling)
	}
	s.updatedUnlock()
	return tell
}

// update changes the stream's state, wakes waiting goroutines, and unregisters the stream when
// both directions have ended.
func (s *Stream) update(change func()) {
	s.mu.Lock()
	change()
	s.updatedUnlock()
}

// updatedUnlock is the second half of update. Locks: s.mu is held, and released.
func (s *Stream) updatedUnlock() {
	in, out := s.in.eof || s.in.err != nil, s.out.closed || s.out.err != nil
	first := in && out && !s.unregistered
	s.unregistered = s.unregistered || in && out
	extra, resetting := s.in.window.borrowed, s.resetting
	s.changed.Broadcast()
	s.mu.Unlock()
	if in {
		s.endDirection(inEnded)
	}
	if out {
		s.endDirection(outEnded)
	}
	if first {
		s.conn.unregister(s, extra)
		if !resetting {
			s.releaseOwn()
		}
	}
}

// releaseOwn lets this side begin another stream instead of one of its own that has ended.
func (s *Stream) releaseOwn() {
	if s.conn.isOwn(s.id) {
		<-s.conn.ownStreams
	}
}

// peerReset processes the peer's RESET. Bytes that came before it can still be read.
func (s *Stream) peerReset(kind outboard.Kind, text string) {
	err := &outboard.Error{Op: s.method, Kind: kind, Err: errors.New(text)}
	if text == "" {
		err.Err = fmt.Errorf("peer closed the stream: %w", io.ErrClosedPipe)
	}
	s.fail(err)
}

// fail ends the directions that are open with the error of the peer or of the connection.
func (s *Stream) fail(err error) {
	var to Receiver
	s.update(func() {
		if s.in.err == nil && !s.in.eof {
			s.in.err = err
			to = s.in.receiver
		}
		if s.out.err == nil && !s.out.closed {
			s.out.err = err
			to = s.in.receiver
		}
	})
	if to != nil {
		to.Failed(err)
	}
}
