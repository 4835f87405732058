package framed

import (
	"sync/atomic"
	"time"
)

// shift lets the goroutine that reads the connection do other work between two
// frames: serving a short call there costs no switch. When the work takes long, a
// watcher has another goroutine go on with reading.
type shift struct {
	// count is odd while the reader works, and rises with each beginning and
	// each end.
	count    atomic.Uint64
	watching atomic.Bool
	wake     chan struct{}
}

const (
	// patience is how often the watcher looks; work that it sees twice is long.
	patience = time.Millisecond
	// watchIdle is after how many looks without work it goes to sleep.
	watchIdle = 64
)

// begin is called before work.
func (s *shift) begin() uint64 {
	n := s.count.Add(1)
	if !s.watching.Load() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return n
}

// end is called after the work that began with n. It returns false when another
// goroutine reads now.
func (s *shift) end(n uint64) bool { return s.count.CompareAndSwap(n, n+1) }

// takeOver ends work that began with n for whoever does it.
func (s *shift) takeOver(n uint64) bool { return s.count.CompareAndSwap(n, n+1) }

// watchLoop starts another reader when the present one is busy for long.
func (c *Conn) watchLoop(r *reader) {
	tick := time.NewTimer(patience)
	defer tick.Stop()
	s := &c.shift
	for {
		select {
		case <-s.wake:
		case <-c.done:
			return
		}
		s.watching.Store(true)
		last, idle := s.count.Load(), 0
		for idle < watchIdle {
			tick.Reset(patience)
			select {
			case <-tick.C:
			case <-c.done:
				return
			}
			now := s.count.Load()
			switch {
			case now != last:
				last, idle = now, 0
			case now&1 == 0:
				idle++
			case s.takeOver(now):
				c.loops.Go(func() { c.read(r, nil) })
			}
			if idle == watchIdle {
				s.watching.Store(false)
				if s.count.Load() != last { // it has not seen that we sleep
					s.watching.Store(true)
					idle = 0
				}
			}
		}
	}
}

// flushAsReader writes what is queued, or has that done where it might take long. It
// returns false when another goroutine reads now.
func (c *Conn) flushAsReader() bool {
	if c.wire.busy() {
		c.queue.wake()
		return true
	}
	n := c.shift.begin()
	c.flush()
	return c.shift.end(n)
}

// read is the loop of whoever reads the connection.
func (c *Conn) read(r *reader, err error) {
	for err == nil {
		if r.dry() && c.queue.waiting() && !c.flushAsReader() {
			return
		}
		err = r.frame()
		if work := r.work; work != nil && err == nil {
			r.work = nil
			n := c.shift.begin()
			work.Work()
			if !c.shift.end(n) {
				c.queue.nudge() // what was sent Later
				return
			}
		}
	}
	c.fail(gone(err))
	close(c.readEnded)
}
