package framed

import "io"

// A Sink takes a stream's bytes where they shall lie: room is reserved, filled,
// and committed. One goroutine at a time uses it.
type Sink interface {
	// Reserve waits until at least least bytes are free and returns all.
	Reserve(least int) ([]byte, error)
	// TryReserve returns what is free now, nil when nothing is.
	TryReserve() []byte
	// Commit publishes the first n of them.
	Commit(n int)
}

// Pour moves all that comes into the sink, until the peer's CloseWrite (then it
// returns io.EOF), its Reset, or the sink's failure.
//
// It is a Read into the sink's room, over and over, without the goroutine switch
// of each: while there is room, the connection's reader itself decrypts into it,
// commits, and goes on. Pour only wakes when the sink is full.
func (s *Stream) Pour(sink Sink) error {
	s.readTurn.Lock()
	defer s.readTurn.Unlock()
	for {
		room, err := sink.Reserve(1)
		if err != nil {
			return err
		}
		if err := s.pour(sink, room); err != nil {
			return err
		}
	}
}

// pour takes what has come before it, or lets the reader work until something
// stops it.
func (s *Stream) pour(sink Sink, room []byte) error {
	s.mu.Lock()
	if s.kept.size == 0 && s.inErr == nil && !s.inEnd {
		if s.unsent {
			s.show()
		}
		s.letReaderPour(sink, room)
		room = sink.TryReserve()
	}
	n, grant := 0, 0
	if s.kept.size > 0 && len(room) > 0 {
		n = s.kept.read(room)
		grant = s.regrant(n)
	}
	over := s.over()
	s.mu.Unlock()
	if n > 0 {
		sink.Commit(n)
	}
	if grant > 0 {
		s.conn.sendSmall(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) })
	}
	return over
}

// letReaderPour returns when the sink is full, something came that did not fit,
// or the stream is over. Locks: s.mu is held.
func (s *Stream) letReaderPour(sink Sink, room []byte) {
	s.sink, s.into = sink, room[:min(len(room), relayPiece)]
	for s.filling || len(s.into) > 0 && s.kept.size == 0 && s.inErr == nil && !s.inEnd {
		s.changed.Wait()
	}
	s.sink, s.into = nil, nil
}

// poured commits n bytes that the connection's reader has put into the room, and
// makes the next. Locks: s.mu is held.
func (s *Stream) poured(n int) error {
	s.sink.Commit(n)
	room := s.sink.TryReserve()
	s.into = room[:min(len(room), relayPiece)]
	if len(s.into) == 0 || s.inErr != nil || s.inEnd {
		s.changed.Broadcast()
	}
	grant := s.regrant(n)
	if grant == 0 {
		return nil
	}
	// The reader never waits for room to write.
	return s.conn.queue.push(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) }, false)
}

// over is why nothing more can come, nil while something may. Locks: s.mu is held.
func (s *Stream) over() error {
	switch {
	case s.kept.size > 0:
		return nil
	case s.inErr != nil:
		return s.inErr
	case s.inEnd:
		return io.EOF
	}
	return nil
}
