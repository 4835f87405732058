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

	readTurn, writeTurn sync.Mutex

	mu          sync.Mutex
	changed     sync.Cond // signals changes of the fields below
	openPending bool      // the OPEN may still be in the queue

	// The receiving side.
	buffered   chunks
	readBuf    []byte // the slice of a waiting Read; nil: none waits
	filling    bool   // the connection's reader is writing into readBuf
	filled     int
	sink       Sink      // commits what the reader has filled instead of waking a Read
	window     int       // the peer's flow-control window
	borrowed   int       // the part of window that comes from the budget
	recvCredit int       // what the peer may still send
	consumed   int       // bytes read since the last grant
	lastGrant  time.Time // when the window was last considered for growth
	readEOF    bool
	readErr    error

	// The sending side.
	sendCredit  int
	writeClosed bool
	writeErr    error

	priority     atomic.Int32
	unregistered bool
	receiver     Receiver
}

func newStream(c *Conn, id uint32, method string, head []byte) *Stream {
	s := &Stream{conn: c, id: id, method: method, head: head, window: firstWindow, recvCredit: firstWindow, sendCredit: firstWindow}
	s.changed.L = &s.mu
	return s
}

// Conn is the connection that the stream belongs to.
func (s *Stream) Conn() *Conn { return s.conn }

// Method is the name that the stream was opened with.
func (s *Stream) Method() string { return s.method }

// Header is what the opener sent with the method. It must not be changed.
func (s *Stream) Header() []byte { return s.head }

// Read waits for at least one byte. After the peer's CloseWrite it returns io.EOF, after its
// Reset that error, in both cases once everything before it is read.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.readTurn.Lock()
	defer s.readTurn.Unlock()
	n, grant, err := s.receive(p)
	if grant > 0 {
		s.conn.out.sendSmall(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) })
	}
	return n, err
}

func (s *Stream) receive(p []byte) (n, grant int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffered.size == 0 && s.readErr == nil && !s.readEOF {
		if s.openPending {
			s.flushOpen()
		}
		s.waitFilled(p)
	}
	switch {
	case s.filled > 0:
		n, s.filled = s.filled, 0
	case s.buffered.size > 0:
		n = s.buffered.read(p)
	case s.readErr != nil:
		return 0, 0, s.readErr
	default:
		return 0, 0, io.EOF
	}
	return n, s.creditFor(n), nil
}

// flushOpen sends the OPEN before this side waits.
func (s *Stream) flushOpen() {
	s.openPending = false
	s.mu.Unlock()
	s.conn.out.flush()
	s.mu.Lock()
}

// waitFilled offers p to the connection's reader until something has arrived. While the reader
// fills p only the reader ends the wait.
func (s *Stream) waitFilled(p []byte) {
	for s.buffered.size == 0 && s.filled == 0 && s.readErr == nil && !s.readEOF || s.filling {
		s.readBuf = p
		s.changed.Wait()
	}
	s.readBuf = nil
}

// creditFor counts n bytes as read and returns the credit to send now.
func (s *Stream) creditFor(n int) (grant int) {
	s.consumed += n
	if s.consumed < s.window/2 || s.readEOF || s.readErr != nil {
		return 0
	}
	grant, s.consumed = s.consumed, 0
	if more := s.windowIncrease(); more > 0 {
		more = s.conn.takeBudget(more)
		s.window += more
		s.borrowed += more
		grant += more
	}
	s.recvCredit += grant
	return grant
}

// secondWindow is the window of a stream that uses up its first one.
const secondWindow = 512 << 10

// windowIncrease is by how much to widen the window. It is wide enough when half of it lasts for
// more than two round trips: a wider one would only fill queues in front of other streams'
// frames.
func (s *Stream) windowIncrease() int {
	most := s.conn.o.Window - s.window
	if s.window < secondWindow {
		return min(most, secondWindow-s.window)
	}
	now := time.Now()
	last := s.lastGrant
	s.lastGrant = now
	if last.IsZero() || now.Sub(last) > 2*s.conn.live.shortestRTT() {
		return 0
	}
	return min(most, s.window)
}

// Write sends p, waiting for credit. It does not keep p.
func (s *Stream) Write(p []byte) (int, error) { return s.send(nil, p, false) }

// copyPiece is the buffer of ReadFrom and WriteTo: several frames, so that some arrive while
// others are written.
const copyPiece = 4 * maxData

// ReadFrom writes all that r gives. It implements io.ReaderFrom with pieces that
// suit the wire.
func (s *Stream) ReadFrom(r io.Reader) (int64, error) { return transfer(s.Write, r.Read) }

// WriteTo reads until the peer's end and writes all to w. It implements
// io.WriterTo.
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

// send writes prefix and p and, with last set, half-closes the stream.
func (s *Stream) send(prefix, p []byte, last bool) (sent int, err error) {
	s.writeTurn.Lock()
	defer s.writeTurn.Unlock()
	return s.write(prefix, p, last)
}

// write is send with writeTurn held.
func (s *Stream) write(prefix, p []byte, last bool) (sent int, err error) {
	class := s.class()
	if len(prefix)+len(p) <= maxQueued {
		class = -1
	} else {
		s.conn.out.lock.announce(class, 1)
		defer s.conn.out.lock.announce(class, -1)
	}
	for len(prefix)+len(p) > 0 {
		n, err := s.takeCredit(min(len(prefix)+len(p), maxData), class)
		if err != nil {
			return sent, err
		}
		first := prefix[:min(n, len(prefix))]
		n -= len(first)
		prefix = prefix[len(first):]
		end := last && n == len(p) && len(prefix) == 0
		if err := s.sendFrame(first, p[:n], end); err != nil {
			return sent, err
		}
		sent, p = sent+len(first)+n, p[n:]
		if end {
			s.mu.Lock()
			s.writeClosed = true
			s.updatedUnlock()
			return sent, nil
		}
	}
	if last {
		return sent, s.sendEnd()
	}
	return sent, s.writable()
}

func (s *Stream) writable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeFailure()
}

// sendFrame sends one frame, and END after it when end is set.
func (s *Stream) sendFrame(prefix, p []byte, end bool) error {
	n := len(prefix) + len(p)
	if n > maxQueued {
		if err := s.conn.out.sendLarge(s, prefix, p); err != nil {
			return err
		}
		if end {
			s.conn.out.sendSmall(s.appendEnd)
		}
		return s.conn.Err()
	}
	s.conn.out.sendSmall(func(b []byte) []byte {
		b = append(append(header{frameData, n, s.id}.append(b), prefix...), p...)
		if end {
			b = s.appendEnd(b)
		}
		return b
	})
	return s.conn.Err()
}

// class is the stream's class in the connection's writeLock.
func (s *Stream) class() int { return int(s.priority.Load()) + 1 }

func (s *Stream) appendEnd(b []byte) []byte { return header{frameEnd, 0, s.id}.append(b) }

// takeCredit waits for credit and takes up to most bytes of it. A caller that has announced
// frames of a class withdraws the announcement while it waits; -1: it has not.
func (s *Stream) takeCredit(most, class int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if class >= 0 && s.sendCredit == 0 {
		s.conn.out.lock.announce(class, -1)
		defer s.conn.out.lock.announce(class, 1)
	}
	for s.sendCredit == 0 && s.writeFailure() == nil {
		s.changed.Wait()
	}
	if err := s.writeFailure(); err != nil {
		return 0, err
	}
	s.openPending = false
	n := min(most, s.sendCredit)
	s.sendCredit -= n
	return n, nil
}

func (s *Stream) writeFailure() error {
	switch {
	case s.writeErr != nil:
		return s.writeErr
	case s.writeClosed:
		return ErrClosed
	}
	return nil
}

// CloseWrite half-closes the stream. The peer reads io.EOF after the last byte.
func (s *Stream) CloseWrite() error {
	s.writeTurn.Lock()
	defer s.writeTurn.Unlock()
	return s.sendEnd()
}

func (s *Stream) sendEnd() error {
	s.mu.Lock()
	err := s.writeFailure()
	ended := s.writeClosed
	s.openPending = false
	s.mu.Unlock()
	if err != nil {
		if ended {
			return nil
		}
		return err
	}
	s.conn.out.sendSmall(s.appendEnd)
	s.update(func() { s.writeClosed = true })
	return nil
}

// Close is CloseWrite for what was written, and discards what was not read. A Write that waits
// for credit is aborted.
func (s *Stream) Close() error {
	if s.writeTurn.TryLock() {
		_ = s.sendEnd()
		s.writeTurn.Unlock()
	}
	s.abandon(outboard.Other, "", ErrClosed)
	return nil
}

// Reset ends both directions at once. The peer's calls return an error of err's kind with its
// text; nil is Close.
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
	}
}

// abort ends both directions, and reports whether either was open.
func (s *Stream) abort(local error) (tell bool) {
	s.mu.Lock()
	tell = (!s.readEOF && s.readErr == nil) || (!s.writeClosed && s.writeErr == nil)
	if s.readErr == nil {
		s.readErr = local
	}
	if s.writeErr == nil {
		s.writeErr = local
	}
	s.buffered.drop()
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
	over := (s.readEOF || s.readErr != nil) && (s.writeClosed || s.writeErr != nil)
	first := over && !s.unregistered
	s.unregistered = s.unregistered || over
	extra := s.borrowed
	s.changed.Broadcast()
	s.mu.Unlock()
	if first {
		s.conn.unregister(s, extra)
	}
}

// connectionEnded ends the stream with its connection.
func (s *Stream) connectionEnded(err error) {
	s.fail(err)
}

// peerReset is the peer's RESET. Bytes that came before it can still be read.
func (s *Stream) peerReset(kind outboard.Kind, text string) {
	err := &outboard.Error{Op: s.method, Kind: kind, Err: errors.New(text)}
	if text == "" {
		err.Err = fmt.Errorf("peer closed the stream: %w", io.ErrClosedPipe)
	}
	s.fail(err)
}

func (s *Stream) fail(err error) {
	var to Receiver
	s.update(func() {
		if s.readErr == nil && !s.readEOF {
			s.readErr = err
			to = s.receiver
		}
		if s.writeErr == nil && !s.writeClosed {
			s.writeErr = err
			to = s.receiver
		}
	})
	if to != nil {
		to.Failed(err)
	}
}
