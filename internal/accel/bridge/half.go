package bridge

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// A Ring is the part of a ring of shared memory that a Half needs. *shm.Ring implements it.
type Ring interface {
	TryNext() []byte
	AwaitBeyond(n uint64)
	Wake()
	Release(n int)
	AnnounceSpace()

	TryReserve() []byte
	AwaitSpace(least int)
	Commit(n int)

	Area() int
	// Err returns why the ring is closed: nil while it is open, io.EOF after a clean close.
	Err() error
	Fail(err error) error
}

// Streams are a session's streams of one connection.
type Streams struct{ Data, Acks *framed.Stream }

// lost reports whether the connection has ended without a close by either side.
func (s Streams) lost() bool { return s.Data.Conn().Lost() }

// Peer reads the answer to streams of kind Resume: the number of bytes that have arrived at the
// device's side.
func (s Streams) Peer() (uint64, error) {
	s.Acks.Flush()
	return readPosition(s.Data)
}

// Reset ends both streams; the peer gets the error.
func (s Streams) Reset(err error) {
	s.Data.Reset(err)
	s.Acks.Reset(err)
}

// A Reconnect replaces the streams of a lost connection. Its argument is the number of bytes that
// have arrived here, and it returns the number of bytes that have arrived at the peer. An error
// ends the session; cause is why the connection was lost.
type Reconnect func(received uint64, cause error) (Streams, uint64, error)

const (
	// sendPiece bounds one step of the sender, so that both ends work in parallel and the bytes
	// are still in the cache when the other end reads them.
	sendPiece = 512 << 10
	// ackDelay is how long an acknowledgement of few bytes is delayed: each one wakes a goroutine
	// on both ends. Many bytes are acknowledged at once, since the sender's ring needs their space
	// for further bytes.
	ackDelay = 20 * time.Millisecond
	// ackShare is the share of a ring's area whose receipt is acknowledged at once.
	ackShare = 8
	// lingerLimit is how long the transfer of a session's last bytes may take.
	lingerLimit = 5 * time.Second
)

// A Half is one end of a session.
type Half struct {
	ring     Ring
	explain  func(error) error
	received atomic.Uint64 // bytes that have arrived in the ring

	mu         sync.Mutex
	changed    sync.Cond
	streams    *Streams // nil: the connection is lost
	acked      uint64   // bytes of the ring that have arrived at the peer, and were released
	sent       uint64   // bytes of the ring that were sent over streams, or are being sent
	unsent     *Streams // streams over which no more bytes are sent
	superseded *Streams // streams that were replaced before their connection was known to be lost
	over       bool
}

// NewHalf returns one end of a session that uses a ring. explain, if it is not nil, returns the
// reason for the kind of error with which the ring was closed; it may block for a moment.
func NewHalf(ring Ring, explain func(error) error) *Half {
	if explain == nil {
		explain = func(err error) error { return err }
	}
	h := &Half{ring: ring, explain: explain}
	h.changed.L = &h.mu
	return h
}

// Run moves bytes until either side ends. Like framed.Relay it closes the ring for the same reason
// as the streams and vice versa, and returns nil after a clean end, else that reason. When ctx is
// done, it has lingerLimit for the last bytes, then it resets the streams.
func (h *Half) Run(ctx context.Context, s Streams, reconnect Reconnect) error {
	var sending sync.WaitGroup
	sending.Go(h.send)
	stop := context.AfterFunc(ctx, h.linger)
	err := h.run(s, reconnect)
	stop()
	_ = h.ring.Fail(err)
	h.finish()
	sending.Wait()
	return err
}

// run attaches streams, new ones when a connection is lost, until the session ends.
func (h *Half) run(s Streams, reconnect Reconnect) error {
	for peer := uint64(0); ; {
		err := h.attach(s, peer)
		if err == nil {
			err = h.receive(s)
		}
		lost := h.detach(s)
		reason := h.ring.Err()
		switch {
		case isBroken(reason) && (lost || errors.Is(err, framed.ErrClosed) || errors.Is(err, errRing)):
			err, lost = h.explain(reason), false
		case reason != nil && h.isOver():
			err, lost = nil, false
		}
		if !lost {
			s.Reset(err)
			return err
		}
		if s, peer, err = reconnect(h.received.Load(), err); err != nil {
			if reason := h.ring.Err(); reason != nil && !isBroken(reason) {
				return nil // the end of the ring was clean, and no further bytes are wanted
			}
			return err
		}
	}
}

// Interrupt declares the current streams lost because the peer has opened others, unless these are
// the current ones already.
func (h *Half) Interrupt(others Streams) {
	h.mu.Lock()
	s := h.streams
	if s == nil || *s == others {
		h.mu.Unlock()
		return
	}
	h.superseded = s
	h.mu.Unlock()
	s.Reset(errSuperseded)
}

var errSuperseded = outboard.Errorf(outboard.SessionLost, "session", "the program has connected anew")

// attach sets the current streams. peer is the number of bytes that have arrived at the peer.
func (h *Half) attach(s Streams, peer uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.acknowledge(peer); err != nil {
		return err
	}
	h.sent, h.streams = h.acked, &s
	h.changed.Broadcast()
	h.ring.Wake()
	return nil
}

// detach unsets the current streams. It reports whether they were lost and others may replace them.
func (h *Half) detach(s Streams) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	superseded := h.superseded != nil && *h.superseded == s
	h.streams, h.superseded = nil, nil
	h.changed.Broadcast()
	h.ring.Wake()
	return !h.over && (superseded || s.lost())
}

// isBroken reports whether a ring was closed for another reason than a clean end.
func isBroken(err error) bool { return err != nil && !errors.Is(err, io.EOF) }

// acknowledge releases the bytes of the ring before a position. The caller holds h.mu.
func (h *Half) acknowledge(position uint64) error {
	if position < h.acked || position > h.sent {
		return outboard.Errorf(outboard.Protocol, "session", "byte %d is acknowledged: %d to %d were sent", position, h.acked, h.sent)
	}
	h.ring.Release(int(position - h.acked)) //nolint:gosec // At most the ring's area.
	h.acked = position
	h.ring.AnnounceSpace()
	return nil
}

func (h *Half) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// finish ends the sender.
func (h *Half) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.changed.Broadcast()
	h.ring.Wake()
}

// linger ends the session after lingerLimit, if it has not ended before.
func (h *Half) linger() {
	time.AfterFunc(lingerLimit, func() {
		h.mu.Lock()
		s, over := h.streams, h.over
		h.mu.Unlock()
		if over {
			return
		}
		h.finish()
		if s != nil {
			s.Reset(errLingered)
		}
	})
}

var errLingered = outboard.Errorf(outboard.SessionLost, "session", "its end took too long")

// send sends the ring's bytes until the session is over.
func (h *Half) send() {
	for {
		reason := h.ring.Err() // before the bytes: bytes published earlier are visible then
		s, piece, position := h.nextPiece()
		switch {
		case s == nil:
			return
		case len(piece) > 0:
			if _, err := s.Data.Write(piece); err != nil {
				h.endSending(s)
			}
		case isBroken(reason):
			s.Reset(h.explain(reason))
			h.endSending(s)
		case reason != nil:
			_ = s.Data.CloseWrite()
			h.endSending(s)
		default:
			h.ring.AwaitBeyond(position)
		}
	}
}

// nextPiece waits for streams, and returns them with the next bytes to send, if any, and the
// position after them. It returns no streams when the session is over.
func (h *Half) nextPiece() (*Streams, []byte, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.streams == nil && !h.over {
		h.changed.Wait()
	}
	if h.over {
		return nil, nil, 0
	}
	var piece []byte
	if all := h.ring.TryNext(); uint64(len(all)) > h.sent-h.acked {
		piece = all[h.sent-h.acked:]
		piece = piece[:min(len(piece), sendPiece)]
	}
	h.sent += uint64(len(piece))
	return h.streams, piece, h.sent
}

// endSending records that no more bytes are sent over streams, and waits until they are replaced.
func (h *Half) endSending(s *Streams) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsent = s
	h.changed.Broadcast()
	for h.streams == s && !h.over {
		h.changed.Wait()
	}
}

// awaitSent waits until all bytes were sent over the current streams, or no more can be sent.
func (h *Half) awaitSent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.streams != nil && h.unsent != h.streams && !h.over {
		h.changed.Wait()
	}
}

// receive moves the peer's bytes into the ring until the streams end, and returns the reason: nil
// after the peer's clean end, when the rest of the ring has been sent as well.
func (h *Half) receive(s Streams) error {
	a := newAcknowledger(h, s)
	var acks sync.WaitGroup
	acks.Go(a.run)
	acks.Go(func() { h.readAcks(s) })
	err := s.Data.CopyTo(&sink{half: h, streams: s, acks: a})
	if errors.Is(err, io.EOF) {
		_ = h.ring.Fail(nil) // which also ends the sender
		h.awaitSent()
		err = nil
	}
	close(a.quit)
	_ = s.Acks.Close()
	acks.Wait()
	return err
}

// errRing reports that the ring was closed; its Err returns the reason.
var errRing = errors.New("the ring is closed")

// A sink receives the peer's bytes into the ring, and counts them. Once the ring has ended cleanly
// it discards them: the ring's reader needs no more.
type sink struct {
	half    *Half
	streams Streams
	acks    *acknowledger
	discard []byte // nil: the bytes go to the ring
}

const discardSize = 64 << 10

// Reserve implements framed.Sink.
func (k *sink) Reserve(least int) ([]byte, error) {
	for {
		if b := k.TryReserve(); len(b) >= least {
			return b, nil
		}
		switch ring := k.half.ring; {
		case isBroken(ring.Err()):
			return nil, errRing
		case k.streams.Data.Conn().Err() != nil || k.half.isReplaced(k.streams):
			return nil, framed.ErrClosed
		default:
			ring.AwaitSpace(least)
		}
	}
}

// TryReserve implements framed.Sink.
func (k *sink) TryReserve() []byte {
	if k.discard != nil {
		return k.discard
	}
	b := k.half.ring.TryReserve()
	if err := k.half.ring.Err(); len(b) == 0 && err != nil && !isBroken(err) {
		k.discard = make([]byte, discardSize)
		return k.discard
	}
	return b
}

// Commit implements framed.Sink. It does not block: the connection's reader calls it.
func (k *sink) Commit(n int) {
	if k.discard == nil {
		k.half.ring.Commit(n)
	}
	k.acks.add(k.half.received.Add(uint64(n))) //nolint:gosec // Not negative.
}

// isReplaced reports whether streams were replaced, or the session is over.
func (h *Half) isReplaced(s Streams) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over || h.superseded != nil && *h.superseded == s
}
