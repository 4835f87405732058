package framed

import "io"

// A Sink is a buffer that bytes are received into in place: space is reserved, filled and
// committed. One goroutine at a time uses it.
type Sink interface {
	// Reserve waits until at least least bytes are free and returns all free space.
	Reserve(least int) ([]byte, error)
	// TryReserve returns the space that is free now; nil: none.
	TryReserve() []byte
	// Commit publishes the first n bytes of the space.
	Commit(n int)
}

// CopyTo reads into the sink until the peer's CloseWrite (then it returns io.EOF), its Reset, or
// the sink's failure.
//
// It behaves like a loop of Read and Commit without a goroutine switch for each: while there is
// space, the connection's reader itself decrypts into it and commits. CopyTo only wakes when the
// sink is full.
func (s *Stream) CopyTo(sink Sink) error {
	s.readTurn.Lock()
	defer s.readTurn.Unlock()
	for {
		room, err := sink.Reserve(1)
		if err != nil {
			return err
		}
		if err := s.copyStep(sink, room); err != nil {
			return err
		}
	}
}

// copyStep copies buffered bytes, or lets the reader fill the sink until something stops it.
func (s *Stream) copyStep(sink Sink, room []byte) error {
	s.mu.Lock()
	if s.buffered.size == 0 && s.readErr == nil && !s.readEOF {
		if s.openPending {
			s.flushOpen()
		}
		s.waitForSink(sink, room)
		room = sink.TryReserve()
	}
	n, grant := 0, 0
	if s.buffered.size > 0 && len(room) > 0 {
		n = s.buffered.read(room)
		grant = s.creditFor(n)
	}
	over := s.readEnd()
	s.mu.Unlock()
	if n > 0 {
		sink.Commit(n)
	}
	if grant > 0 {
		s.conn.out.sendSmall(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) })
	}
	return over
}

// waitForSink returns when the sink is full, data was buffered instead, or the stream has ended.
// Locks: s.mu is held.
func (s *Stream) waitForSink(sink Sink, room []byte) {
	s.sink, s.readBuf = sink, room[:min(len(room), relayPiece)]
	for s.filling || len(s.readBuf) > 0 && s.buffered.size == 0 && s.readErr == nil && !s.readEOF {
		s.changed.Wait()
	}
	s.sink, s.readBuf = nil, nil
}

// sinkFilled commits n bytes that the connection's reader has put into the space, and reserves
// the next. Locks: s.mu is held.
func (s *Stream) sinkFilled(n int) error {
	s.sink.Commit(n)
	room := s.sink.TryReserve()
	s.readBuf = room[:min(len(room), relayPiece)]
	if len(s.readBuf) == 0 || s.readErr != nil || s.readEOF {
		s.changed.Broadcast()
	}
	grant := s.creditFor(n)
	if grant == 0 {
		return nil
	}
	// The reader must not block on writing.
	return s.conn.out.queue.push(func(b []byte) []byte { return appendCredit(b, s.id, uint32(grant)) }, false)
}

// readEnd is why no more bytes follow; nil: more may. Locks: s.mu is held.
func (s *Stream) readEnd() error {
	switch {
	case s.buffered.size > 0:
		return nil
	case s.readErr != nil:
		return s.readErr
	case s.readEOF:
		return io.EOF
	}
	return nil
}
