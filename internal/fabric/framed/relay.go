package framed

import (
	"errors"
	"io"
	"sync"
)

// A Ring is what Relay needs of a shared-memory ring: waiting for bytes and room
// in place, and an end whose reason has a kind.
type Ring interface {
	// Next waits for at least least bytes and returns all that can be read;
	// io.EOF after a clean end.
	Next(least int) ([]byte, error)
	// Release gives back the first n of them.
	Release(n int)
	Sink
	// Fail ends the ring with err's kind; nil is a clean end.
	Fail(err error) error
}

// relayPiece bounds one step of a relay, so that the ends work in parallel and
// the bytes are still in the cache when the other end gets to them.
const relayPiece = 512 << 10

// Relay joins a stream and a ring in both directions, with no buffer between: the
// stream's bytes are decrypted into the ring, and the ring's sent from where they
// lie. When either ends, Relay ends the other for the same reason and returns: nil
// after a clean end, else that reason. A clean end of either side is the end of
// both directions, after what was sent before it has arrived.
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
	return reason(inward, outward)
}

// reason picks what ended a relay first: the other direction then only fails
// because the stream or the ring was ended by us.
func reason(inward, outward error) error {
	if inward != nil && !errors.Is(inward, ErrClosed) {
		return inward
	}
	return outward
}

func toRing(s *Stream, r Ring) error { return clean(s.Pour(r)) }

// toStream sends until the ring ends. A peer that has ended reads no more: what the ring still
// says then is for nobody, and is no failure. It is taken all the same, or else who writes it
// would never get to what the peer has said before its end.
func toStream(s *Stream, r Ring) error {
	for deaf := false; ; {
		b, err := r.Next(1)
		if err != nil {
			return clean(err)
		}
		n := len(b)
		if !deaf {
			n, err = s.Write(b[:min(len(b), relayPiece)])
			deaf = err != nil && s.ended()
		}
		r.Release(n)
		if err != nil && !deaf {
			return err
		}
	}
}

// ended says whether the peer has ended its bytes in good order.
func (s *Stream) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inEnd
}

func clean(err error) error {
	if err == io.EOF { //nolint:errorlint // an EOF that is wrapped came too early
		return nil
	}
	return err
}
