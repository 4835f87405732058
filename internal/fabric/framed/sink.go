package framed

// A Sink is a buffer that bytes are received into in place: space is reserved, filled and
// committed. One goroutine at a time uses it.
type Sink interface {
	// Reserve waits until at least least bytes are free and returns all free space.
	Reserve(least int) ([]byte, error)
	// TryReserve returns the space that is free now, or nil if there is none.
	TryReserve() []byte
	// Commit publishes the first n bytes of the space.
	Commit(n int)
}

// relayPiece bounds one step of CopyTo, so that both ends work in parallel and the bytes are
// still in the cache when the sink's reader reads them.
const relayPiece = 512 << 10

// CopyTo reads into the sink until the peer's CloseWrite (then it returns io.EOF), its Reset, or
// the sink's failure.
//
// It behaves like a loop of Read and Commit without a goroutine switch for each: while there is
// space, the connection's reader itself decrypts into it and commits. CopyTo only wakes when the
// sink is full.
func (s *Stream) CopyTo(sink Sink) error {
	s.in.turn.Lock()
	defer s.in.turn.Unlock()
	for {
		buffer, err := sink.Reserve(1)
		if err != nil {
			return err
		}
		if err := s.in.copyStep(sink, buffer); err != nil {
			return err
		}
	}
}
