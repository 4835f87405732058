package bridge

import (
	"encoding/binary"
	"io"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// An acknowledger sends the number of bytes that have arrived over some streams: at once when they
// are a notable share of the ring, otherwise with a delay.
type acknowledger struct {
	half    *Half
	streams Streams
	share   uint64

	pending atomic.Bool   // first was signalled, and no acknowledgement was sent since
	acked   atomic.Uint64 // the position that was sent last
	first   chan struct{}
	many    chan struct{}
	quit    chan struct{}
}

func newAcknowledger(h *Half, s Streams) *acknowledger {
	a := &acknowledger{
		half: h, streams: s, share: uint64(h.ring.Area() / ackShare), //nolint:gosec // Positive.
		first: make(chan struct{}, 1), many: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	a.acked.Store(h.received.Load())
	return a
}

// add records that the ring has received bytes up to a position. It does not block.
func (a *acknowledger) add(position uint64) {
	if !a.pending.Swap(true) {
		signal(a.first)
	}
	if position-a.acked.Load() >= a.share {
		signal(a.many)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run sends acknowledgements until quit is closed or the stream fails.
func (a *acknowledger) run() {
	delay := time.NewTimer(0)
	defer delay.Stop()
	for {
		select {
		case <-a.first:
		case <-a.quit:
			return
		}
		delay.Reset(ackDelay)
		select {
		case <-a.many:
		case <-delay.C:
		case <-a.quit:
			return
		}
		a.pending.Store(false)
		position := a.half.received.Load()
		a.acked.Store(position)
		if writePosition(a.streams.Acks, position) != nil {
			return
		}
	}
}

// readAcks handles the peer's acknowledgements until the stream ends.
func (h *Half) readAcks(s Streams) {
	for {
		position, err := readPosition(s.Acks)
		if err != nil {
			return
		}
		if err := h.acknowledgeFor(s, position); err != nil {
			s.Reset(err)
			return
		}
	}
}

// acknowledgeFor handles an acknowledgement that arrived over streams. It ignores replaced streams.
func (h *Half) acknowledgeFor(s Streams, position uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams == nil || *h.streams != s {
		return nil
	}
	return h.acknowledge(position)
}

// positionSize is the size of a position on the wire.
const positionSize = 8

func writePosition(s *framed.Stream, position uint64) error {
	_, err := s.Write(binary.LittleEndian.AppendUint64(nil, position))
	return err
}

func readPosition(s *framed.Stream) (uint64, error) {
	var b [positionSize]byte
	_, err := io.ReadFull(s, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}
