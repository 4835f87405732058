package shm

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A processor that was idle takes 20 to 40 us to wake on a virtual machine, longer
// than many a reply takes to come. So a wait begins by looking, giving way to
// whoever else wants the processor, while the waits of late were that short. It lasts
// twice as long as waits usually do, within bounds: large messages take longer than
// small ones, and the time until a sleeper is back is lost to both sides.
const (
	spinLeast = 60 * time.Microsecond
	spinMost  = 150 * time.Microsecond
	shortWait = 200 * time.Microsecond
	trust     = 4 // how many short waits one long one outweighs
	memory    = 4 // how many waits it takes to get used to others
)

// Patience knows whether the waits of late were short. One goroutine uses it at a
// time. The zero value is ready.
type Patience struct {
	short int
	usual time.Duration // a wait, up to shortWait
}

// look is how long a look lasts. Who looks keeps its processor of Go's scheduler: a
// long look is for those who leave one to the process's other goroutines.
func (p *Patience) look() (limit time.Duration, done func()) {
	limit = min(max(spinLeast, 2*p.usual), spinMost)
	if limit == spinLeast {
		return limit, func() {}
	}
	if keepers.Add(1) >= int32(runtime.GOMAXPROCS(0)) {
		limit = spinLeast
	}
	return limit, func() { keepers.Add(-1) }
}

// spin looks until ready holds or it has looked for long enough, and reports
// whether ready holds.
func (p *Patience) spin(ready func() bool) bool {
	if p.short <= 0 {
		return false
	}
	limit, done := p.look()
	defer done()
	for begin := time.Now(); time.Since(begin) < limit; {
		for range 8 {
			if ready() {
				return true
			}
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	return false
}

// note takes account of a wait.
func (p *Patience) note(waited time.Duration) {
	p.usual += (min(waited, shortWait) - p.usual) / memory
	if waited < shortWait {
		p.short = min(p.short+1, 2*trust)
		return
	}
	p.short = max(p.short-trust, 0)
}
