package framed

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard"
)

// queue collects small frames while somebody else writes, so that they leave
// together.
type queue struct {
	mu     sync.Mutex
	room   sync.Cond
	frames []byte
	spare  []byte
	active bool // somebody has promised to write what is queued
	ended  bool
	next   atomic.Uint32 // the id of the next stream that we open
	kick   chan struct{} // wakes the flush loop
}

const (
	// small is the largest payload that is copied into the queue.
	small = 8 << 10
	// queueHigh is where writers of small frames wait; queueFull is where a
	// peer that makes us answer and does not read is given up.
	queueHigh = 256 << 10
	queueFull = 1 << 20
	// flushRounds is how long one writer works for the others.
	flushRounds = 4
)

func (q *queue) init(first uint32) {
	q.room.L = &q.mu
	q.next.Store(first)
	q.kick = make(chan struct{}, 1)
	q.frames = append(q.frames, preface...)
}

func (q *queue) end() {
	q.mu.Lock()
	q.ended = true
	q.room.Broadcast()
	q.mu.Unlock()
	q.wake()
}

// open gives out the next id and queues its OPEN, as ids must rise on the wire,
// and what may be sent with it. With claim set the
// frames leave soon, and it reports whether the caller has to flush them; else
// they wait for what the caller writes next.
func (q *queue) open(c *Conn, o Opening, p Piece, claim bool) (s *Stream, mine bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next.Load() > 1<<31 {
		return nil, false, outboard.Errorf(outboard.Exhausted, "open "+o.Method, "no stream ids left on this connection")
	}
	if o.Unless != nil && o.Unless.Load() {
		return nil, false, ErrClosed
	}
	s = newStream(c, q.next.Load(), o.Method, o.Header)
	s.receiver = o.Receiver
	if o.Stream != nil {
		*o.Stream = s
	}
	s.SetPriority(o.Priority)
	s.allowance -= p.size()
	s.outEnd = p.End
	s.unsent = !claim
	if !c.add(s) {
		<-c.done
		return nil, false, c.err
	}
	q.next.Add(2)
	q.frames = appendOpen(q.frames, s.id, o.Method, o.Header)
	q.piece(s.id, &p)
	if !claim {
		return s, false, nil
	}
	mine = !q.active
	q.active = true
	return s, mine, nil
}

// add queues frames, waiting while the queue is long. It reports whether the
// caller has to flush.
func (q *queue) add(fill func([]byte) []byte) (mine bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) >= queueHigh && !q.ended {
		q.room.Wait()
	}
	if q.ended {
		return false
	}
	q.frames = fill(q.frames)
	mine = !q.active
	q.active = true
	return mine
}

// push queues frames without ever waiting and leaves writing them to others: the
// flush loop, if wake is set, else the connection's reader, who calls it, before it
// waits. It fails when a peer makes us answer more than it reads.
func (q *queue) push(fill func([]byte) []byte, wake bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) >= queueFull {
		return broken("peer asks for answers and does not read them")
	}
	if !q.ended {
		q.frames = fill(q.frames)
		if wake && !q.active {
			q.wake()
		}
	}
	return nil
}

// waiting says whether there are frames that nobody has promised to write.
func (q *queue) waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.frames) > 0 && !q.active && !q.ended
}

// flushMeanwhile writes what waits before the reader, who may be within a long frame, asks
// for more of it. The reader must not wait for room to write: where it might have to, or
// somebody else writes, the flush loop does it.
func (c *Conn) flushMeanwhile() {
	if !c.queue.waiting() {
		return
	}
	if !c.isAgreed.Load() || !c.queue.claim(small) {
		c.queue.nudge()
		return
	}
	if c.pipe.writable() && c.wire.tryLock() {
		if !c.writeWaiting() {
			return
		}
	}
	c.queue.release()
}

// writeWaiting writes what is queued, and gives the wire back. It reports whether more came
// meanwhile, for whoever claimed the queue to see to.
func (c *Conn) writeWaiting() (more bool) {
	b := c.queue.take()
	var err error
	if len(b) > 0 {
		err = c.writeQueued(b)
	}
	more = c.queue.give(b, true)
	c.wire.unlock()
	if err != nil {
		c.fail(gone(err))
	}
	return more && err == nil
}

// nudge has the flush loop write what waits.
func (q *queue) nudge() {
	if q.waiting() {
		q.wake()
	}
}

func (q *queue) wake() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// claim asks for the right to flush what is queued, if that is at most most bytes.
func (q *queue) claim(most int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.active || len(q.frames) == 0 || len(q.frames) > most {
		return false
	}
	q.active = true
	return true
}

// take empties the queue. The result is valid until give.
func (q *queue) take() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.frames
	q.frames, q.spare = q.spare[:0], nil
	q.room.Broadcast()
	return b
}

// give returns the slice of take. It reports whether frames came meanwhile;
// if not, and over is set, the promise to flush is kept.
func (q *queue) give(b []byte, over bool) (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cap(b) <= 2*queueHigh {
		q.spare = b[:0]
	}
	more = len(q.frames) > 0 && !q.ended
	if over && !more {
		q.active = false
	}
	return more
}

// flushLoop writes what nobody else can stop for.
func (c *Conn) flushLoop() {
	for {
		select {
		case <-c.done:
			return
		case <-c.queue.kick:
		}
		c.flush()
	}
}

// flush writes what is queued unless somebody is at it.
func (c *Conn) flush() {
	if c.queue.claim(math.MaxInt) {
		c.drain()
	}
}

// drain writes what is queued, as whoever claimed it must, and after some rounds
// leaves the rest to the flush loop.
func (c *Conn) drain() {
	if !c.agreed() {
		return
	}
	c.gather()
	for range flushRounds {
		c.wire.lock(urgent)
		if !c.writeWaiting() {
			return
		}
	}
	c.queue.release()
}

// several is from how many streams on it pays to wait for each other's frames. With
// fewer, who is let go first is more likely somebody who works for long.
const several = 4

// gather lets others add their frames before one system call takes all, when
// there are others.
func (c *Conn) gather() {
	if len(c.slots) >= several || c.peers.Load() >= several {
		runtime.Gosched()
	}
}

// release lets somebody else flush.
func (q *queue) release() {
	q.mu.Lock()
	q.active = false
	q.mu.Unlock()
	q.wake()
}

// agreed waits for the end of the handshake: a pipe that is held would hold the
// handshake too.
func (c *Conn) agreed() bool {
	if c.isAgreed.Load() {
		return true
	}
	select {
	case <-c.ready:
		return true
	case <-c.done:
		return false
	}
}

func (c *Conn) writeQueued(b []byte) error {
	if len(b) <= 16<<10 { // one record, one system call
		_, err := c.rw.Write(b)
		return err
	}
	c.pipe.hold()
	_, err := c.rw.Write(b)
	if e := c.pipe.release(); err == nil {
		err = e
	}
	return err
}

// sendSmall queues frames and sees to it that they leave.
func (c *Conn) sendSmall(fill func([]byte) []byte) {
	if c.queue.add(fill) {
		c.drain()
	}
}

// sendLarge writes one DATA frame from the caller's slices, after all that is
// queued.
func (c *Conn) sendLarge(s *Stream, prefix, p []byte) error {
	if !c.agreed() {
		return c.err
	}
	c.wire.lock(s.class())
	defer c.wire.unlock()
	b := header{frameData, len(prefix) + len(p), s.id}.append(c.queue.take())
	b = append(b, prefix...)
	c.pipe.hold()
	_, err := c.rw.Write(b)
	if err == nil {
		_, err = c.rw.Write(p)
	}
	if e := c.pipe.release(); err == nil {
		err = e
	}
	c.queue.give(b, false)
	if err != nil {
		c.fail(gone(err))
		return c.err
	}
	return nil
}
