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

	mu      sync.Mutex
	changed sync.Cond // any field below
	unsent  bool      // the OPEN may still be in the queue

	// Receiving.
	kept    chunks
	into    []byte // where a Read waits for data; nil: nobody does
	filling bool   // the connection's reader is writing into it
	filled  int
	sink    Sink      // commits what the reader has filled, instead of a woken Read
	window  int       // what the peer may send ahead at most, now
	extra   int       // the part of it that is borrowed from the budget
	credit  int       // what the peer may still send
	eaten   int       // read since the last grant
	granted time.Time // the last grant of a window that may grow
	inEnd   bool
	inErr   error

	// Sending.
	allowance int
	outEnd    bool
	outErr    error

	priority  atomic.Int32
	forgotten bool
	onGone    func(error)
	receiver  Receiver
}

func newStream(c *Conn, id uint32, method string, head []byte) *Stream {
	s := &Stream{conn: c, id: id, method: method, head: head, window: firstWindow, credit: firstWindow, allowance: firstWindow}
	s.changed.L = &s.mu
	return s
}

// Conn is the connection that the stream belongs to.
func (s *Stream) Conn() *Conn { return s.conn }

// Method is the name that the stream was opened with.
func (s *Stream) Method() string { return s.method }

// Header is what the opener sent along with the method. It must not be changed.
func (s *Stream) Header() []byte { return s.head }

// Read reads what has come, waiting for at least one byte. After the peer's
// CloseWrite it returns io.EOF, after its Reset that error, in both cases once
// everything before it is read.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.readTurn.Lock()
	defer s.readTurn.Unlock()
	n, grant, err := s.receive(p)
	if grant > 0 {
		s.conn.sendSmall(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) })
	}
	return n, err
}

func (s *Stream) receive(p []byte) (n, grant int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept.size == 0 && s.inErr == nil && !s.inEnd {
		if s.unsent {
			s.show()
		}
		s.waitFilled(p)
	}
	switch {
	case s.filled > 0:
		n, s.filled = s.filled, 0
	case s.kept.size > 0:
		n = s.kept.read(p)
	case s.inErr != nil:
		return 0, 0, s.inErr
	default:
		return 0, 0, io.EOF
	}
	return n, s.regrant(n), nil
}

// show sends the OPEN before this side begins to wait.
func (s *Stream) show() {
	s.unsent = false
	s.mu.Unlock()
	s.conn.flush()
	s.mu.Lock()
}

// waitFilled offers p to the connection's reader until something has come. While
// the reader is filling p nothing else may end the wait.
func (s *Stream) waitFilled(p []byte) {
	for s.kept.size == 0 && s.filled == 0 && s.inErr == nil && !s.inEnd || s.filling {
		s.into = p
		s.changed.Wait()
	}
	s.into = nil
}

// regrant counts n bytes as read and returns the credit to send, if it is time.
func (s *Stream) regrant(n int) (grant int) {
	s.eaten += n
	if s.eaten < s.window/2 || s.inEnd || s.inErr != nil {
		return 0
	}
	grant, s.eaten = s.eaten, 0
	if more := s.widening(); more > 0 {
		more = s.conn.borrow(more)
		s.window += more
		s.extra += more
		grant += more
	}
	s.credit += grant
	return grant
}

// nextWindow is what a stream gets when its first window is being used up.
const nextWindow = 512 << 10

// widening is how much more the peer may send ahead. A window is wide enough when
// half of it takes longer than two round trips: more of it would only lie in queues,
// where other streams' frames must wait behind it.
func (s *Stream) widening() int {
	most := s.conn.o.Window - s.window
	if s.window < nextWindow {
		return min(most, nextWindow-s.window)
	}
	now := time.Now()
	last := s.granted
	s.granted = now
	if last.IsZero() || now.Sub(last) > 2*s.conn.quickest() {
		return 0
	}
	return min(most, s.window)
}

// Write sends p, waiting for credit. When it returns p is the caller's again.
func (s *Stream) Write(p []byte) (int, error) { return s.send(nil, p, false) }

// copyPiece is the buffer of ReadFrom and WriteTo: several frames, so that some
// can arrive while others are written.
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

// send writes prefix and p and, when last is set, the end after them.
func (s *Stream) send(prefix, p []byte, last bool) (sent int, err error) {
	s.writeTurn.Lock()
	defer s.writeTurn.Unlock()
	return s.write(prefix, p, last)
}

// write is send for who has the turn.
func (s *Stream) write(prefix, p []byte, last bool) (sent int, err error) {
	class := s.class()
	if len(prefix)+len(p) <= small {
		class = -1
	} else {
		s.conn.wire.want(class, 1)
		defer s.conn.wire.want(class, -1)
	}
	for len(prefix)+len(p) > 0 {
		n, err := s.spend(min(len(prefix)+len(p), maxData), class)
		if err != nil {
			return sent, err
		}
		first := prefix[:min(n, len(prefix))]
		n -= len(first)
		prefix = prefix[len(first):]
		end := last && n == len(p) && len(prefix) == 0
		if err := s.sendPiece(first, p[:n], end); err != nil {
			return sent, err
		}
		sent, p = sent+len(first)+n, p[n:]
		if end {
			s.mu.Lock()
			s.outEnd = true
			s.settled()
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
	return s.outFailure()
}

// sendPiece sends one frame, and END after it when end is set.
func (s *Stream) sendPiece(prefix, p []byte, end bool) error {
	n := len(prefix) + len(p)
	if n > small {
		if err := s.conn.sendLarge(s, prefix, p); err != nil {
			return err
		}
		if end {
			s.conn.sendSmall(s.appendEnd)
		}
		return s.conn.Err()
	}
	s.conn.sendSmall(func(b []byte) []byte {
		b = append(append(header{frameData, n, s.id}.append(b), prefix...), p...)
		if end {
			b = s.appendEnd(b)
		}
		return b
	})
	return s.conn.Err()
}

// class is the stream's among those that wait for the connection.
func (s *Stream) class() int { return int(s.priority.Load()) + 1 }

func (s *Stream) appendEnd(b []byte) []byte { return header{frameEnd, 0, s.id}.append(b) }

// spend waits for credit and takes up to most bytes of it. Who has announced
// frames of a class takes that back while it waits; -1: has not.
func (s *Stream) spend(most, class int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if class >= 0 && s.allowance == 0 {
		s.conn.wire.want(class, -1)
		defer s.conn.wire.want(class, 1)
	}
	for s.allowance == 0 && s.outFailure() == nil {
		s.changed.Wait()
	}
	if err := s.outFailure(); err != nil {
		return 0, err
	}
	s.unsent = false
	n := min(most, s.allowance)
	s.allowance -= n
	return n, nil
}

func (s *Stream) outFailure() error {
	switch {
	case s.outErr != nil:
		return s.outErr
	case s.outEnd:
		return ErrClosed
	}
	return nil
}

// CloseWrite ends this side's bytes. The peer reads io.EOF after the last one.
func (s *Stream) CloseWrite() error {
	s.writeTurn.Lock()
	defer s.writeTurn.Unlock()
	return s.sendEnd()
}

func (s *Stream) sendEnd() error {
	s.mu.Lock()
	err := s.outFailure()
	ended := s.outEnd
	s.unsent = false
	s.mu.Unlock()
	if err != nil {
		if ended {
			return nil
		}
		return err
	}
	s.conn.sendSmall(s.appendEnd)
	s.settle(func() { s.outEnd = true })
	return nil
}

// Close is CloseWrite for what was written, and gives up what was not read yet.
// A Write that waits for credit meanwhile is given up as well.
func (s *Stream) Close() error {
	if s.writeTurn.TryLock() {
		_ = s.sendEnd()
		s.writeTurn.Unlock()
	}
	s.abandon(outboard.Other, "", ErrClosed)
	return nil
}

// Reset ends both directions at once. The peer's calls return an error of err's
// kind with its text; nil is Close.
func (s *Stream) Reset(err error) {
	if err == nil {
		_ = s.Close()
		return
	}
	kind, text := s.verdict(err)
	s.abandon(kind, text, ErrClosed)
}

// verdict is what the peer learns of err. It names the method itself.
func (s *Stream) verdict(err error) (outboard.Kind, string) {
	return outboard.KindOf(err), strings.TrimPrefix(err.Error(), s.method+": ")
}

// abandon ends what has not ended, and tells the peer if there was anything.
func (s *Stream) abandon(kind outboard.Kind, text string, local error) {
	if s.giveUp(local) {
		s.conn.sendSmall(func(b []byte) []byte { return appendVerdict(b, frameReset, s.id, kind, text) })
	}
}

// giveUp ends what has not ended, and says whether there was anything.
func (s *Stream) giveUp(local error) (tell bool) {
	s.mu.Lock()
	tell = (!s.inEnd && s.inErr == nil) || (!s.outEnd && s.outErr == nil)
	if s.inErr == nil {
		s.inErr = local
	}
	if s.outErr == nil {
		s.outErr = local
	}
	s.kept.drop()
	s.settled()
	return tell
}

// settle changes the stream's state, wakes who waits for it, and forgets the
// stream when both directions are over.
func (s *Stream) settle(change func()) {
	s.mu.Lock()
	change()
	s.settled()
}

// settled is the second half of settle. Locks: s.mu is held, and released.
func (s *Stream) settled() {
	over := (s.inEnd || s.inErr != nil) && (s.outEnd || s.outErr != nil)
	first := over && !s.forgotten
	s.forgotten = s.forgotten || over
	extra := s.extra
	s.changed.Broadcast()
	s.mu.Unlock()
	if first {
		s.conn.forget(s, extra)
	}
}

// lost ends the stream with its connection.
func (s *Stream) lost(err error) {
	s.fallen(err, err)
}

// reset is the peer's RESET. Bytes that came before it can still be read.
func (s *Stream) reset(kind outboard.Kind, text string) {
	err := &outboard.Error{Op: s.method, Kind: kind, Err: errors.New(text)}
	if text == "" {
		err.Err = fmt.Errorf("peer closed the stream: %w", io.ErrClosedPipe)
	}
	s.fallen(err, err)
}

func (s *Stream) fallen(in, out error) {
	var tell func(error)
	var to Receiver
	s.settle(func() {
		if s.inErr == nil && !s.inEnd {
			s.inErr = in
			tell, to = s.onGone, s.receiver
		}
		if s.outErr == nil && !s.outEnd {
			s.outErr = out
			tell, to = s.onGone, s.receiver
		}
	})
	if tell != nil {
		tell(out)
	}
	if to != nil {
		to.Failed(out)
	}
}

// whenGone arranges for f to be called when the peer resets the stream or the
// connection ends.
func (s *Stream) whenGone(f func(error)) {
	s.mu.Lock()
	failed := s.outErr
	if failed == nil {
		failed = s.inErr
	}
	s.onGone = f
	s.mu.Unlock()
	if failed != nil {
		f(failed)
	}
}
