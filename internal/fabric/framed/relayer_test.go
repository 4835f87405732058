package framed

import (
	"errors"
	"io"
	"sync"
)

// A Ring is what Relay needs of a ring in shared memory: it waits for bytes and for space in
// place, and its end has a kind of error.
type Ring interface {
	// Next waits for at least least bytes and returns all that can be read; io.EOF after a clean
	// end.
	Next(least int) ([]byte, error)
	// Release frees the first n of them.
	Release(n int)
	Sink
	// Fail ends the ring with err's kind; nil is a clean end.
	Fail(err error) error
}

// Relay joins a stream and a ring in both directions without a buffer between them: the stream's bytes
// are decrypted into the ring, and the ring's are sent from it. When either ends, Relay ends the other
// for the same reason and returns: nil after a clean end, else that error. A clean end of either side
// ends both directions, after what was sent before has arrived.
func Relay(s *Stream, r Ring) error {
	var inward, outward error
	var both sync.WaitGroup
	both.Go(func() {
		inward = toRing(s, r)
		_ = r.Fail(inward)
	})
	outward = toStream(s, r)
	if outward == nil {
		_ = s.Close()
	} else {
		s.Reset(outward)
	}
	both.Wait()
	return firstCause(inward, outward)
}

// firstCause returns what ended a relay first: the other direction then fails because the relay
// ended the stream or the ring.
func firstCause(inward, outward error) error {
	if inward != nil && !errors.Is(inward, ErrClosed) {
		return inward
	}
	return outward
}

func toRing(s *Stream, r Ring) error { return withoutEOF(s.CopyTo(r)) }

// toStream sends until the ring ends. After the peer has ended its side, nothing more is sent;
// the ring is read nevertheless, so that its writer can get to the peer's last bytes.
func toStream(s *Stream, r Ring) error {
	for deaf := false; ; {
		b, err := r.Next(1)
		if err != nil {
			return withoutEOF(err)
		}
		n := len(b)
		if !deaf {
			n, err = s.Write(b[:min(len(b), relayPiece)])
			deaf = err != nil && s.peerEnded()
		}
		r.Release(n)
		if err != nil && !deaf {
			return err
		}
	}
}

// peerEnded reports whether the peer has ended its bytes in good order.
func (s *Stream) peerEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in.eof
}

func withoutEOF(err error) error {
	if err == io.EOF { //nolint:errorlint // a wrapped EOF came too early
		return nil
	}
	return err
}
