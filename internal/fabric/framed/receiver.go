package framed

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/outboard-run/outboard"
)

// A Receiver takes what comes on a stream in the goroutine that reads the
// connection, without a switch to another one for each piece. All methods but
// Work must return at once. Only Failed may be called while another one runs.
type Receiver interface {
	// Room returns where the next bytes go; more is how many there are. None
	// means that they are not wanted.
	Room(more int) []byte
	// Filled says that the first n bytes of the last Room have come. It returns
	// for how many bytes the peer may have credit again; see [Stream.Took].
	Filled(n int) (took int)
	// Ended is the peer's CloseWrite. It returns whether there is work.
	Ended() (work bool)
	// Work is what Ended asked for. It may take its time: when it does, another
	// goroutine goes on with reading.
	Work()
	// Failed is the peer's Reset, or the end of the connection.
	Failed(err error)
}

// An Acceptor decides about a stream that the peer opens: it returns who takes
// its bytes, or an error, with which the stream is reset. It must return at once.
// header is only valid until then.
type Acceptor func(s *Stream, header []byte) (Receiver, error)

// Handle gives the streams that the peer opens with method to accept instead of
// Accept, from now on. Those that came earlier go there too, unless somebody has
// accepted them.
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
			c.sortOut(s, method, accept)
		default:
		}
	}
}

// acceptor keeps the method's name as a string for its streams.
type acceptor struct {
	method string
	accept Acceptor
}

// sortOut treats one stream that came before its acceptor.
func (c *Conn) sortOut(s *Stream, method string, accept Acceptor) {
	if s.method != method {
		select {
		case c.accepts <- s:
		default: // more came meanwhile
			s.Reset(errTooMany)
		}
		return
	}
	r, err := accept(s, s.head)
	if err != nil {
		s.Reset(err)
		return
	}
	s.attach(r)
}

var errTooMany = outboard.Errorf(outboard.Exhausted, "", "too many streams on one connection")

// attach gives r what has come already, and all that comes.
func (s *Stream) attach(r Receiver) {
	b := make([]byte, chunkSize)
	took := 0
	s.mu.Lock()
	for s.kept.size > 0 { // more may come while r, which may Refuse, takes some
		early := b[:s.kept.read(b)]
		s.mu.Unlock()
		took += hand(r, early)
		s.mu.Lock()
	}
	s.receiver = r
	ended, failed := s.inEnd, s.failure()
	s.mu.Unlock()
	s.Took(took) // the peer may have used its credit up
	if ended && r.Ended() {
		s.conn.loops.Go(r.Work)
	}
	if failed != nil {
		r.Failed(failed)
	}
}

// hand gives b to r.
func hand(r Receiver, b []byte) (took int) {
	for len(b) > 0 {
		n := copy(r.Room(len(b)), b)
		if n == 0 {
			break // not wanted
		}
		took += r.Filled(n)
		b = b[n:]
	}
	return took
}

// failure is what the peer or the connection did to the stream. Locks: s.mu is held.
func (s *Stream) failure() error {
	if s.outErr != nil {
		return s.outErr
	}
	return s.inErr
}

// Start is Open for a stream whose bytes o.Receiver takes, with a first Send: both
// leave in one write. It waits only while MaxStreams streams are open. An empty piece
// without an end leaves with whatever is written next, very soon.
func (c *Conn) Start(ctx context.Context, o Opening, p Piece) (*Stream, error) {
	if err := checkOpen(o.Method, o.Header); err != nil {
		return nil, err
	}
	if err := c.takeSlot(ctx); err != nil {
		return nil, err
	}
	now := p.size() <= small
	if !now {
		p, o.rest = Piece{}, p
	}
	claim := p.size() > 0 || p.End
	s, mine, err := c.queue.open(c, o, p, claim)
	if err != nil {
		<-c.slots
		return nil, err
	}
	switch {
	case !now:
		err := s.Send(o.rest)
		return s, err
	case mine:
		c.drain()
	case !claim && !p.Later:
		c.queue.nudge()
	}
	return s, c.Err()
}

// An Opening describes a stream that this side begins.
type Opening struct {
	Method string
	Header []byte
	// Receiver takes what the peer sends; nil: it is Read.
	Receiver Receiver
	Priority Priority
	// Stream, if set, is where the stream is put before anything comes on it.
	Stream **Stream
	// Unless, if set and true when the OPEN would be queued, makes it fail with ErrClosed.
	Unless *atomic.Bool

	rest Piece
}

// A Piece is what one Send sends as if it were one slice, small parts around a
// large one.
type Piece struct {
	Prefix, Data, Suffix []byte
	// End ends this side's bytes.
	End bool
	// Later lets a small piece wait: for what is written next, where it begins a
	// stream, else until the connection's reader waits itself. That is only for what
	// Receiver.Work sends.
	Later bool
}

func (p *Piece) size() int { return len(p.Prefix) + len(p.Data) + len(p.Suffix) }

func (p *Piece) append(b []byte) []byte {
	return append(append(append(b, p.Prefix...), p.Data...), p.Suffix...)
}

// Send sends p, waiting for credit. When it returns p's slices are the caller's
// again.
func (s *Stream) Send(p Piece) error {
	n := p.size()
	if n == 0 || n > small {
		return s.sendParts(p)
	}
	s.writeTurn.Lock()
	defer s.writeTurn.Unlock()
	if !s.trySpend(n) {
		return s.sendTurn(p)
	}
	if err := s.conn.sendPiece(s.id, p); err != nil {
		return err
	}
	if p.End {
		s.mu.Lock()
		s.outEnd = true
		s.settled()
	}
	return nil
}

// sendParts sends what does not go out in one frame.
func (s *Stream) sendParts(p Piece) error {
	s.writeTurn.Lock()
	defer s.writeTurn.Unlock()
	return s.sendTurn(p)
}

// sendTurn does so for who has the turn.
func (s *Stream) sendTurn(p Piece) error {
	if _, err := s.write(p.Prefix, p.Data, p.End && len(p.Suffix) == 0); err != nil || len(p.Suffix) == 0 {
		return err
	}
	_, err := s.write(nil, p.Suffix, p.End)
	return err
}

// trySpend takes credit for n bytes if there is enough.
func (s *Stream) trySpend(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allowance < n || s.outFailure() != nil {
		return false
	}
	s.unsent = false
	s.allowance -= n
	return true
}

// sendPiece queues a small piece, and sees to it that it leaves.
func (c *Conn) sendPiece(id uint32, p Piece) error {
	q := &c.queue
	q.mu.Lock()
	for len(q.frames) >= queueHigh && !q.ended {
		q.room.Wait()
	}
	mine := false
	if !q.ended {
		q.piece(id, &p)
		mine = !q.active && !p.Later
		q.active = q.active || mine
	}
	q.mu.Unlock()
	if mine {
		c.drain()
	}
	return c.Err()
}

// piece queues a DATA frame and the END. Locks: q.mu is held.
func (q *queue) piece(id uint32, p *Piece) {
	if n := p.size(); n > 0 {
		q.frames = p.append(header{frameData, n, id}.append(q.frames))
	}
	if p.End {
		q.frames = header{frameEnd, 0, id}.append(q.frames)
	}
}

// Took gives the peer of a stream with a Receiver credit for n bytes more.
func (s *Stream) Took(n int) {
	s.mu.Lock()
	grant := s.regrant(n)
	s.mu.Unlock()
	if grant > 0 {
		s.conn.sendSmall(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) })
	}
}

// SetPriority orders what the stream sends from now on.
func (s *Stream) SetPriority(p Priority) { s.priority.Store(int32(min(max(p, Low), High))) }

// Refuse is Reset for a Receiver: it does not wait.
func (s *Stream) Refuse(err error) {
	kind, text := s.verdict(err)
	if s.giveUp(ErrClosed) {
		_ = s.conn.queue.push(func(b []byte) []byte { return appendVerdict(b, frameReset, s.id, kind, text) }, true)
	}
}

// deliver reads n bytes of a DATA frame into a receiver.
func (r *reader) deliver(s *Stream, to Receiver, n int) error {
	took := 0
	for n > 0 {
		room := to.Room(n)
		if len(room) == 0 {
			_, err := r.in.Discard(n)
			return hungUpUnlessNil(err)
		}
		room = room[:min(len(room), n)]
		if _, err := io.ReadFull(r.in, room); err != nil {
			return hungUp(err)
		}
		n -= len(room)
		took += to.Filled(len(room))
	}
	return r.regrant(s, took)
}

// regrant gives the peer credit for what a receiver took.
func (r *reader) regrant(s *Stream, took int) error {
	if took == 0 {
		return nil
	}
	s.mu.Lock()
	grant := s.regrant(took)
	s.mu.Unlock()
	if grant == 0 {
		return nil
	}
	return r.c.queue.push(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) }, false)
}
