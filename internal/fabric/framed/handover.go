package framed

import (
	"sync/atomic"
	"time"
)

// handover lets the goroutine that reads the connection do other work between two frames:
// serving a short call there costs no goroutine switch. When the work takes long, a watcher
// starts another goroutine that continues reading.
type handover struct {
	// count is odd while the reader works, and rises with each beginning and each end.
	count    atomic.Uint64
	watching atomic.Bool
	wake     chan struct{}
}

const (
	// watchInterval is the watcher's period; work that spans two periods is long.
	watchInterval = time.Millisecond
	// maxIdleTicks is the number of periods without work after which the watcher sleeps.
	maxIdleTicks = 64
)

// beginWork marks the beginning of work, and returns the number that stands for it.
func (s *handover) beginWork() uint64 {
	n := s.count.Add(1)
	if !s.watching.Load() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return n
}

// end marks the end of the work that began with n. It returns false if another goroutine reads now.
func (s *handover) end(n uint64) bool { return s.count.CompareAndSwap(n, n+1) }

// claim ends the work that began with n on behalf of its goroutine.
func (s *handover) claim(n uint64) bool { return s.count.CompareAndSwap(n, n+1) }

// watchLoop starts another reader when the current one works for long.
func (c *Conn) watchLoop(r *reader) {
	tick := time.NewTimer(watchInterval)
	defer tick.Stop()
	s := &c.handover
	for {
		select {
		case <-s.wake:
		case <-c.done:
			return
		}
		s.watching.Store(true)
		last, idle := s.count.Load(), 0
		for idle < maxIdleTicks {
			tick.Reset(watchInterval)
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
			case s.claim(now):
				c.loops.Go(func() { c.read(r, nil) })
			}
			if idle == maxIdleTicks {
				s.watching.Store(false)
				if s.count.Load() != last { // work began before watching was cleared
					s.watching.Store(true)
					idle = 0
				}
			}
		}
	}
}

// flushAsReader writes the queued frames, or wakes the flush loop if that might block. It returns
// false if another goroutine reads now.
func (c *Conn) flushAsReader() bool {
	if c.out.lock.contended() {
		c.out.queue.wake()
		return true
	}
	n := c.handover.beginWork()
	c.out.flush()
	return c.handover.end(n)
}

// read is the reader's loop.
func (c *Conn) read(r *reader, err error) {
	for err == nil {
		if r.mayBlock() && c.out.queue.hasUnclaimed() && !c.flushAsReader() {
			return
		}
		err = r.readFrame()
		if work := r.work; work != nil && err == nil {
			r.work = nil
			n := c.handover.beginWork()
			work.Work()
			if !c.handover.end(n) {
				c.out.queue.wakeIfPending() // pieces that were sent with Later
				return
			}
		}
	}
	c.fail(unreachable(err))
	close(c.readEnded)
}
