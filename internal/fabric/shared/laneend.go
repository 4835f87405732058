package shared

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/shm"
)

// A laneEnd is this side's half of a lane: the state that caller and callee have in common.
type laneEnd struct {
	conn     *Conn
	region   *region
	bell     shm.Bell         // this side's bell
	waits    shm.AdaptiveWait // the reader's waits
	out      *producer
	in       *consumer
	heap     *allocator
	peerHeap *peerHeap
	// handleDesc processes one valid descriptor; the reader calls it.
	handleDesc func(d *desc, slot unsafe.Pointer) error
	// onClose is called once when the end closes, with the mutex held.
	onClose func()
	closed  chan struct{} // closed when the end closes
	// rung wakes the parked reader.
	rung chan struct{}
	// quiet reports that the last wait ended without a ring: the next wait parks. Only the reader
	// uses it.
	quiet bool
	// job is a call that the reader leaves its role for. Only the reader uses it.
	job     *served
	current desc // the descriptor being processed; only the reader uses it

	// blockedSenders counts senders that wait for a ring slot, heap space or a call slot.
	blockedSenders atomic.Int32

	mu           sync.Mutex
	buffered     int // bytes of streams that were received and not read
	closeErr     error
	peerErr      error // not nil: the peer is gone, and the end closes with it once the ring is read
	reading      bool  // some goroutine is the reader
	readerWaiter *waiter
	readerAsleep atomic.Bool // the reader sleeps or is about to
	woke         atomic.Bool // a parked goroutine was woken since the reader last slept
	parked       waiterList
	waiting      [numResources]waitQueue
	overtakes    [numResources]int // overtaking sends since a sender that had waited last sent
}

func (e *laneEnd) open(c *Conn, out int) {
	r := c.region
	e.conn, e.region, e.closed, e.rung = c, r, make(chan struct{}), make(chan struct{}, 1)
	e.bell = r.bell(out ^ 1)
	e.out, e.heap = newProducer(r, out), newAllocator(r, out)
	e.in, e.peerHeap = newConsumer(r, out^1), newPeerHeap(r, out^1)
}

// drain processes all descriptors, or stops after a call that the reader has to leave its role for.
// Only the reader calls it.
func (e *laneEnd) drain() {
	d := &e.current
	for range e.in.n {
		slot, err := e.in.next(d)
		if err == nil && slot == nil {
			break
		}
		if err == nil {
			err = d.check(e.region.geometry)
		}
		if err == nil {
			err = e.handleDesc(d, slot)
		}
		if err != nil {
			e.conn.closeOnViolation(err)
			return
		}
		if e.in.advance(); e.job != nil {
			return
		}
	}
	e.in.publish()
	if e.blockedSenders.Load() > 0 {
		e.wakeReleased()
	}
}

// close closes the end, and wakes all goroutines that wait on it.
func (e *laneEnd) close(err error) {
	e.mu.Lock()
	e.closeLocked(err)
	e.mu.Unlock()
	e.wakeReader()
}

func (e *laneEnd) closeLocked(err error) {
	if e.closeErr != nil {
		return
	}
	e.closeErr = err
	for w := e.parked.first; w != nil; w = w.next {
		w.signal()
	}
	close(e.closed)
	e.onClose()
}

// peerGone closes the end with err once the descriptors that the peer has left in the ring are
// processed.
func (e *laneEnd) peerGone(err error) {
	e.mu.Lock()
	if e.peerErr = err; e.reading {
		e.mu.Unlock()
		e.wakeReader()
		return
	}
	e.reading = true
	e.drainAndClose()
	e.reading = false
	e.mu.Unlock()
}

// drainAndClose closes the end when the peer is gone. The reader calls it, with the mutex held.
func (e *laneEnd) drainAndClose() {
	if e.peerErr == nil || e.closeErr != nil {
		return
	}
	for range 2 * e.in.n { // the peer cannot have left more
		e.mu.Unlock()
		e.drain()
		e.mu.Lock()
		if e.job == nil {
			break
		}
		e.job = nil
	}
	e.closeLocked(e.peerErr)
}

func unavailable(reason string) error { return status.Error(codes.Unavailable, reason) }
