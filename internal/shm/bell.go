package shm

import (
	"sync/atomic"
	"time"
)

// A Bell is a futex in shared memory: a counter, and a flag on another cache line
// that says that somebody sleeps. It is for other layouts than the [Ring]'s.
type Bell struct{ Word, Sleeper *atomic.Uint32 }

// Now is what Sleep wants to know. It is taken before the sleeper looks whether
// there is something to do, so that what changes after the look ends the sleep.
func (b Bell) Now() uint32 { return b.Word.Load() }

// Ring says that something changed. It makes a system call only when somebody
// sleeps.
func (b Bell) Ring() { ring(b.Word, b.Sleeper) }

// Shout is Ring for those who don't believe the flag.
func (b Bell) Shout() { shout(b.Word, b.Sleeper) }

// Sleep returns when the bell has rung since Now was old, or after limit, or
// for no reason at all. It looks for a moment before it sleeps where p says that
// this pays. One goroutine of all processes sleeps at a time.
func (b Bell) Sleep(p *Patience, old uint32, limit time.Duration) {
	begin := time.Now()
	if !p.spin(func() bool { return b.Word.Load() != old }) {
		b.Sleeper.Store(1)
		if b.Word.Load() == old {
			wait(b.Word, old, limit)
		}
		b.Sleeper.Store(0)
	}
	p.note(time.Since(begin))
}
