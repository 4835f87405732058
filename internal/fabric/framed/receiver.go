package framed

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/outboard-run/outboard"
)

// A Receiver consumes a stream's bytes in the goroutine that reads the connection, without a
// goroutine switch for each piece. All methods but Work must return at once. Only Failed may be
// called concurrently with the others.
type Receiver interface {
	// Buffer returns the slice into which the next bytes are read; more is the number of these
	// bytes. Nil: they are discarded.
	Buffer(more int) []byte
	// Filled reports that the first n bytes of the last Buffer have been read. It returns the
	// number of bytes for which the peer may have credit again; see [Stream.Consumed].
	Filled(n int) (took int)
	// Ended is called on the peer's CloseWrite. It reports whether to call Work.
	Ended() (work bool)
	// Work may take long: then another goroutine continues reading.
	Work()
	// Failed is called on the peer's Reset, or at the end of the connection.
	Failed(err error)
}

// An Acceptor decides on a stream that the peer opens: it returns the consumer of its bytes, or
// an error, with which the stream is reset. It must return at once. header is valid until then.
type Acceptor func(s *Stream, header []byte) (Receiver, error)

// Handle passes streams that the peer opens with method to accept instead of Accept, including
// streams that Accept has not returned yet.
func (c *Conn) Handle(method string, accept Acceptor) {
	c.mu.Lock()
	if c.acceptors == nil {
		c.acceptors = make(map[string]*acceptor)
	}
	c.acceptors[method] = &acceptor{method, accept}
	c.mu.Unlock()
	for range len(c.accepts) {
		select {
		case s := <-c.accepts:
			c.reassign(s, method, accept)
		default:
		}
	}
}

// acceptor is an Acceptor with its method's name, a string that its streams share.
type acceptor struct {
	method string
	accept Acceptor
}

// reassign processes one stream that arrived before its acceptor.
func (c *Conn) reassign(s *Stream, method string, accept Acceptor) {
	if s.method != method {
		select {
		case c.accepts <- s:
		default: // the queue was filled meanwhile
			s.Reset(errTooMany)
		}
		return
	}
	r, err := accept(s, s.head)
	if err != nil {
		s.Reset(err)
		return
	}
	s.attachReceiver(r)
}

var errTooMany = outboard.Errorf(outboard.Exhausted, "", "too many streams on one connection")

// attachReceiver passes the buffered bytes and all later bytes to r.
func (s *Stream) attachReceiver(r Receiver) {
	b := make([]byte, chunkSize)
	took := 0
	s.mu.Lock()
	for s.in.buffered.size > 0 { // more may arrive while r, which may Refuse, consumes some
		early := b[:s.in.buffered.read(b)]
		s.mu.Unlock()
		took += deliverTo(r, early)
		s.mu.Lock()
	}
	s.in.receiver = r
	ended, failed := s.in.eof, s.failure()
	s.mu.Unlock()
	s.Consumed(took) // the peer may be out of credit
	if ended && r.Ended() {
		s.conn.loops.Go(func() {
			r.Work()
			s.conn.out.queue.wakeIfPending() // pieces that were sent with Later: the reader may wait already
		})
	}
	if failed != nil {
		r.Failed(failed)
	}
}

// deliverTo copies b into r.
func deliverTo(r Receiver, b []byte) (took int) {
	for len(b) > 0 {
		n := copy(r.Buffer(len(b)), b)
		if n == 0 {
			break // discarded
		}
		took += r.Filled(n)
		b = b[n:]
	}
	return took
}

// failure returns the peer's or the connection's error. Locks: s.mu is held.
func (s *Stream) failure() error {
	if s.out.err != nil {
		return s.out.err
	}
	return s.in.err
}

// Start opens a stream whose bytes o.Receiver consumes, and sends p on it: both leave in one write.
// It waits only while MaxStreams streams are open. An empty piece without an end leaves with the
// next write, or very soon.
func (c *Conn) Start(ctx context.Context, o Opening, p Piece) (*Stream, error) {
	if err := checkOpen(o.Method, o.Header); err != nil {
		return nil, err
	}
	if err := c.acquireStream(ctx); err != nil {
		return nil, err
	}
	now := p.size() <= maxQueued
	if !now {
		p, o.rest = Piece{}, p
	}
	claim := p.size() > 0 || p.End
	s, mine, err := c.out.queue.open(c, o, p, claim)
	if err != nil {
		<-c.ownStreams
		return nil, err
	}
	switch {
	case !now:
		err := s.Send(o.rest)
		return s, err
	case mine:
		c.out.flushClaimed()
	case !claim && !p.Later:
		c.out.queue.wakeIfPending()
	}
	return s, c.Err()
}

// An Opening describes a stream that this side begins.
type Opening struct {
	Method string
	Header []byte
	// Receiver consumes the bytes that the peer sends; nil: Read does.
	Receiver Receiver
	Priority Priority
	// StreamVar, if set, receives the stream before the first byte arrives on it.
	StreamVar **Stream
	// CancelIf, if set and true when the OPEN would be queued, fails the opening with ErrClosed.
	CancelIf *atomic.Bool

	rest Piece
}

// A Piece is sent as one slice: small parts around a large one.
type Piece struct {
	Prefix, Data, Suffix []byte
	// End half-closes the stream.
	End bool
	// Later delays a small piece: until the next write if it begins a stream, otherwise until the
	// connection's reader waits. Only Receiver.Work may use it for the latter.
	Later bool

	endSent bool // the END has left with the data
}

func (p *Piece) size() int { return len(p.Prefix) + len(p.Data) + len(p.Suffix) }

func (p *Piece) append(b []byte) []byte {
	return append(append(append(b, p.Prefix...), p.Data...), p.Suffix...)
}

// cut removes the first n bytes of Prefix and Data from p, and returns them.
func (p *Piece) cut(n int) (prefix, data []byte) {
	m := min(n, len(p.Prefix))
	prefix, p.Prefix = p.Prefix[:m], p.Prefix[m:]
	data, p.Data = p.Data[:n-m], p.Data[n-m:]
	return prefix, data
}

// Send sends p, waiting for credit. It does not keep p's slices.
func (s *Stream) Send(p Piece) error {
	n := p.size()
	if n == 0 || n > maxGathered {
		return s.out.sendParts(p)
	}
	s.out.turn.Lock()
	defer s.out.turn.Unlock()
	return s.out.sendOne(p, n)
}

// appendPiece queues a DATA frame and the END. Locks: q.mu is held.
func (q *queue) appendPiece(id uint32, p *Piece) {
	if n := p.size(); n > 0 {
		q.pending = p.append(header{frameData, n, id}.append(q.pending))
	}
	if p.End {
		q.pending = header{frameEnd, 0, id}.append(q.pending)
	}
}

// Consumed returns credit for n bytes to the peer of a stream with a Receiver.
func (s *Stream) Consumed(n int) {
	s.mu.Lock()
	grant := s.in.creditFor(n)
	s.mu.Unlock()
	if grant > 0 {
		s.conn.out.sendSmall(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) })
	}
}

// Expect widens the window so that the peer can send the next n bytes without waiting for credit,
// as far as the connection's budget goes: a message whose length is known then costs no round trip
// on its way. It does not block.
func (s *Stream) Expect(n int) {
	s.mu.Lock()
	grant := 0
	if !s.in.eof && s.in.err == nil {
		grant = s.in.window.expect(n)
	}
	s.mu.Unlock()
	if grant > 0 {
		// An error means that the peer does not read: it ends the connection at the next frame.
		_ = s.conn.out.queue.push(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) }, true)
	}
}

// SetPriority sets the priority of the frames that the stream sends from now on.
func (s *Stream) SetPriority(p Priority) { s.out.priority.Store(int32(min(max(p, Low), High))) }

// Refuse resets the stream like Reset, without blocking: a Receiver may call it.
func (s *Stream) Refuse(err error) {
	kind, text := s.errorFor(err)
	if s.abort(ErrClosed) {
		_ = s.conn.out.queue.push(func(b []byte) []byte { return appendError(b, frameReset, s.id, kind, text) }, true)
		s.releaseOwn()
	}
}

// readInto reads n bytes of a DATA frame into a receiver.
func (r *reader) readInto(s *Stream, to Receiver, n int) error {
	took := 0
	for n > 0 {
		buffer := to.Buffer(n)
		if len(buffer) == 0 {
			_, err := r.in.Discard(n)
			return connectionLostUnlessNil(err)
		}
		buffer = buffer[:min(len(buffer), n)]
		if _, err := io.ReadFull(r.in, buffer); err != nil {
			return connectionLost(err)
		}
		n -= len(buffer)
		took += to.Filled(len(buffer))
	}
	return r.returnCredit(s, took)
}

// returnCredit returns credit for the bytes that a receiver consumed.
func (r *reader) returnCredit(s *Stream, took int) error {
	if took == 0 {
		return nil
	}
	s.mu.Lock()
	grant := s.in.creditFor(took)
	s.mu.Unlock()
	if grant == 0 {
		return nil
	}
	return r.c.out.queue.push(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) }, false)
}
