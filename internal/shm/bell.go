package shm

import (
	"sync/atomic"
	"time"
)

// A Bell is a doorbell in shared memory: a futex that counts the rings, and a flag on another
// cache line that is set while a goroutine sleeps on it. It is for layouts other than the
// [Ring]'s.
type Bell struct {
	Word, Sleeper *atomic.Uint32
	// Notify wakes a goroutine of the other process that has parked (see Park); nil: that goroutine
	// never parks. It must not block: the other process can claim at any time that it has parked.
	Notify func()
}

// The values of a Sleeper.
const (
	awake = iota
	asleep
	parked
)

// Now returns the counter for Sleep. The caller reads it before it checks for work, so that
// a ring after the check ends the sleep.
func (b Bell) Now() uint32 { return b.Word.Load() }

// Ring increments the counter and wakes the sleeper. It makes a system call only if the
// flag is set.
func (b Bell) Ring() {
	b.Word.Add(1)
	if b.Sleeper.Load() == awake {
		return
	}
	switch b.Sleeper.Swap(awake) {
	case awake:
	case parked:
		if b.Notify != nil {
			b.Notify()
		}
	default:
		wake(b.Word)
	}
}

// RingAlways is Ring with an unconditional system call, for callers that do not trust the flag.
func (b Bell) RingAlways() { ringAlways(b.Word, b.Sleeper) }

// Sleep returns when the bell has rung since Now returned old, or after limit, or
// spuriously. It spins before it sleeps if p expects a short wait. At most one goroutine of
// all processes may sleep on a bell.
func (b Bell) Sleep(p *AdaptiveWait, old uint32, limit time.Duration) {
	begin := time.Now()
	if !p.spin(func() bool { return b.Word.Load() != old }) {
		b.Sleeper.Store(asleep)
		if b.Word.Load() == old {
			wait(b.Word, old, limit)
		}
		b.Sleeper.Store(awake)
	}
	p.observe(time.Since(begin))
}

// Park is Sleep without an operating system thread: it waits for rung, into which the caller
// sends when the other process's Notify has reached this one.
func (b Bell) Park(old uint32, rung <-chan struct{}, limit time.Duration) {
	b.Sleeper.Store(parked)
	if b.Word.Load() == old {
		timer := time.NewTimer(limit)
		select {
		case <-rung:
		case <-timer.C:
		}
		timer.Stop()
	}
	b.Sleeper.Store(awake)
}
