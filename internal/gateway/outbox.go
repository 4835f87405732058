package gateway

import (
	"context"
	"sync"

	"github.com/outboard-run/outboard/internal/quota"
)

// outgoing is a message to clients.
type outgoing struct {
	data   []byte
	binary bool
	charge *charge // nil: it is not charged
	// charged says that the socket whose outbox has the message holds the charge.
	charged bool
}

func (m outgoing) letter() byte {
	if m.binary {
		return 'b'
	}
	return 't'
}

// release releases the message's charge when it leaves an outbox.
func (m outgoing) release() {
	if m.charged {
		m.charge.release()
	}
}

// freeOutbox is how many bytes an outbox may have uncharged, besides a message of at most this size
// that is being sent, so that clients that read are served even when slow clients have used up the
// tenant's budget.
const freeOutbox = 64 << 10

// charge reserves the bytes of a message while outboxes hold it. The members of a room share the
// message, which is charged once.
type charge struct {
	budget *quota.Budget
	size   int64

	mu   sync.Mutex
	held int // number of outboxes
}

// withCharge returns a message whose bytes are charged while outboxes hold it.
func (h *hub) withCharge(m outgoing) outgoing {
	m.charge = &charge{budget: h.sockets.gateway.opts.Buffers, size: int64(len(m.data))}
	return m
}

// retain reserves the bytes for one more outbox. It returns false if the budget is used up.
func (w *charge) retain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == 0 && w.budget.TryReserve(w.size) != nil {
		return false
	}
	w.held++
	return true
}

func (w *charge) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held--; w.held == 0 {
		w.budget.Release(w.size)
	}
}

// send adds a message to the outbox. It ends a socket whose outbox is full, or whose client is
// behind while the tenant's budget is used up, since the client would miss messages. send is called
// under the hub's lock and does not block.
func (s *socket) send(m outgoing) {
	if s.unwritable.Load() {
		return
	}
	if !s.enqueue(m) {
		s.drop()
	}
}

// awaitOutbox waits, before a message of the client is handled, until the outbox is at most half
// full: a client that sends faster than it reads the answers is slowed down and not dropped. The
// writer ends the wait if the client does not read at all.
func (s *socket) awaitOutbox(ctx context.Context) {
	for len(s.outbox) > outboxSize/2 || s.queuedBytes.Load() > outboxBytes/2 || s.largeQueued.Load() {
		select {
		case <-s.outboxFreed:
		case <-s.writerDone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// enqueue adds a message to the outbox if it fits: up to outboxBytes, and one larger message, whose
// size says nothing about whether the client reads.
func (s *socket) enqueue(m outgoing) bool {
	if !s.reserveOutbox(&m) {
		return false
	}
	select {
	case s.outbox <- m:
		return true
	default:
		s.leaveOutbox(m)
		m.release()
		return false
	}
}

// reserveOutbox counts a message as waiting, and charges it.
func (s *socket) reserveOutbox(m *outgoing) bool {
	size := int64(len(m.data))
	large := size > outboxBytes
	if large && !s.largeQueued.CompareAndSwap(false, true) {
		return false
	}
	queued := s.queuedBytes.Load()
	if !large {
		queued = s.queuedBytes.Add(size)
	}
	m.charged = (large || queued > freeOutbox) && m.charge != nil
	if queued > outboxBytes || m.charged && !m.charge.retain() {
		s.leaveOutbox(*m)
		return false
	}
	return true
}

// leaveOutbox no longer counts a message as waiting.
func (s *socket) leaveOutbox(m outgoing) {
	if size := int64(len(m.data)); size > outboxBytes {
		s.largeQueued.Store(false)
	} else {
		s.queuedBytes.Add(-size)
	}
}

// discardOutbox drops the unsent messages, once no goroutine adds any more.
func (s *socket) discardOutbox() {
	for {
		select {
		case m := <-s.outbox:
			s.leaveOutbox(m)
			m.release()
		default:
			return
		}
	}
}
