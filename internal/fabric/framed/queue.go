package framed

import (
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard"
)

// queue collects small frames while another goroutine writes, so that they leave in one write.
type queue struct {
	mu         sync.Mutex
	spaceFreed sync.Cond
	pending    []byte
	spare      []byte
	claimed    bool // some goroutine is responsible for writing the pending frames
	ended      bool
	next       atomic.Uint32 // the id of the next stream that this side opens
	wakeup     chan struct{} // wakes the flush loop
}

const (
	// maxQueued is the largest payload that is always copied into the queue.
	maxQueued = 8 << 10
	// maxGathered is the largest piece of a burst that is copied into the queue: for longer pieces
	// the copy costs more than the system call that it saves.
	maxGathered = 32 << 10
	// queueBlock is the size from which senders of small frames block; at queueLimit the
	// connection ends, since the peer requests responses that it does not read.
	queueBlock = 256 << 10
	queueLimit = 1 << 20
	// flushRounds bounds how often one sender writes on behalf of the others.
	flushRounds = 4
)

func (q *queue) init(first uint32) {
	q.spaceFreed.L = &q.mu
	q.next.Store(first)
	q.wakeup = make(chan struct{}, 1)
	q.pending = append(q.pending, preface...)
}

func (q *queue) end() {
	q.mu.Lock()
	q.ended = true
	q.spaceFreed.Broadcast()
	q.mu.Unlock()
	q.wake()
}

// open assigns the next id to a stream and queues its OPEN together with p, since ids must rise on
// the wire. With claim set it reports whether the caller has to flush; without, the frames wait for
// the caller's next write.
func (q *queue) open(c *Conn, o Opening, p Piece, claim bool) (s *Stream, mine bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next.Load() > 1<<31 {
		return nil, false, outboard.Errorf(outboard.Exhausted, "open "+o.Method, "no stream ids left on this connection")
	}
	if o.CancelIf != nil && o.CancelIf.Load() {
		return nil, false, ErrClosed
	}
	s = newStream(c, q.next.Load(), o.Method, o.Header)
	s.in.receiver = o.Receiver
	if o.StreamVar != nil {
		*o.StreamVar = s
	}
	s.SetPriority(o.Priority)
	s.out.credit -= p.size()
	s.out.closed = p.End
	s.openPending = !claim
	if !c.register(s) {
		<-c.done
		return nil, false, c.err
	}
	q.next.Add(2)
	q.pending = appendOpen(q.pending, s.id, o.Method, o.Header)
	q.appendPiece(s.id, &p)
	if !claim {
		return s, false, nil
	}
	mine = !q.claimed
	q.claimed = true
	return s, mine, nil
}

// add queues frames, blocking while the queue is long. It reports whether the caller has to
// flush.
func (q *queue) add(fill func([]byte) []byte) (mine bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.pending) >= queueBlock && !q.ended {
		q.spaceFreed.Wait()
	}
	if q.ended {
		return false
	}
	q.pending = fill(q.pending)
	mine = !q.claimed
	q.claimed = true
	return mine
}

// push queues frames without blocking, and leaves writing them to the flush loop (with wake set)
// or to the connection's reader, which calls push, before it waits. It fails when the peer
// requests more responses than it reads.
func (q *queue) push(fill func([]byte) []byte, wake bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) >= queueLimit {
		return violation("peer asks for answers and does not read them")
	}
	if !q.ended {
		q.pending = fill(q.pending)
		if wake && !q.claimed {
			q.wake()
		}
	}
	return nil
}

// size returns the number of bytes that are pending.
func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}

// hasUnclaimed reports whether there are frames that no goroutine is responsible for.
func (q *queue) hasUnclaimed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending) > 0 && !q.claimed && !q.ended
}

// wakeIfPending wakes the flush loop if frames are unclaimed.
func (q *queue) wakeIfPending() {
	if q.hasUnclaimed() {
		q.wake()
	}
}

func (q *queue) wake() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

// claim makes the caller responsible for the pending frames, if they are at most most bytes.
func (q *queue) claim(most int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.claimed || len(q.pending) == 0 || len(q.pending) > most {
		return false
	}
	q.claimed = true
	return true
}

// dequeueAll empties the queue. The slice is valid until putBack.
func (q *queue) dequeueAll() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.pending
	q.pending, q.spare = q.spare[:0], nil
	q.spaceFreed.Broadcast()
	return b
}

// putBack gives the slice of dequeueAll back. It reports whether frames were added meanwhile; if
// not, and over is set, the claim ends.
func (q *queue) putBack(b []byte, over bool) (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cap(b) <= 2*queueBlock {
		q.spare = b[:0]
	}
	more = len(q.pending) > 0 && !q.ended
	if over && !more {
		q.claimed = false
	}
	return more
}

// unclaim passes the responsibility to the flush loop.
func (q *queue) unclaim() {
	q.mu.Lock()
	q.claimed = false
	q.mu.Unlock()
	q.wake()
}
