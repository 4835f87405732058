package shared

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/shm"
)

// An end is our half of a lane: what the caller and the callee have in common.
type end struct {
	conn   *Conn
	region *region
	bell   shm.Bell     // ours
	waits  shm.Patience // of the reader
	out    *producer
	in     *consumer
	heap   *allocator
	theirs *borrower
	// dispatch treats one valid descriptor; it is called by the reader.
	dispatch func(d *desc, slot unsafe.Pointer) error
	// buried hears once that the end is dead, with the mutex held.
	buried func()
	grave  chan struct{} // closed then
	// job is what the reader leaves its role for. Only the reader touches it.
	job     *served
	scratch desc // the descriptor at hand; likewise

	// hungry is how many wait for room.
	hungry atomic.Int32

	mu      sync.Mutex
	dead    error
	left    error // the peer is gone: why all will end once what it left is read
	reading bool  // somebody is the reader
	leader  *waiter
	asleep  atomic.Bool // the leader is, or is about to be
	parked  queue
	rooms   [rooms]room
}

func (e *end) open(c *Conn, out int) {
	r := c.region
	e.conn, e.region, e.grave = c, r, make(chan struct{})
	e.bell = r.bell(out ^ 1)
	e.out, e.heap = newProducer(r, out), newAllocator(r, out)
	e.in, e.theirs = newConsumer(r, out^1), newBorrower(r, out^1)
}

// drain treats all descriptors that are there, or those up to one that the reader
// has to leave its role for. Only the reader calls it.
func (e *end) drain() {
	d := &e.scratch
	for range e.in.n {
		slot, err := e.in.next(d)
		if err == nil && slot == nil {
			break
		}
		if err == nil {
			err = d.check(e.region.geometry)
		}
		if err == nil {
			err = e.dispatch(d, slot)
		}
		if err != nil {
			e.conn.broke(err)
			return
		}
		if e.in.advance(); e.job != nil {
			return
		}
	}
	e.in.tell()
	if e.hungry.Load() > 0 {
		e.feed()
	}
}

// bury ends all that waits.
func (e *end) bury(err error) {
	e.mu.Lock()
	e.buryLocked(err)
	e.mu.Unlock()
	e.kick()
}

func (e *end) buryLocked(err error) {
	if e.dead != nil {
		return
	}
	e.dead = err
	for w := e.parked.first; w != nil; w = w.next {
		w.signal()
	}
	close(e.grave)
	e.buried()
}

// depart is for a peer that is gone: what it has left is read, then all ends with err.
func (e *end) depart(err error) {
	e.mu.Lock()
	if e.left = err; e.reading {
		e.mu.Unlock()
		e.kick()
		return
	}
	e.reading = true
	e.mourn()
	e.reading = false
	e.mu.Unlock()
}

// mourn ends all when the peer is gone. The reader calls it, with the mutex held.
func (e *end) mourn() {
	if e.left == nil || e.dead != nil {
		return
	}
	for range 2 * e.in.n { // it can't have left more
		e.mu.Unlock()
		e.drain()
		e.mu.Lock()
		if e.job == nil {
			break
		}
		e.job = nil
	}
	e.buryLocked(e.left)
}

func unavailable(what string) error { return status.Error(codes.Unavailable, what) }
