package shm

import (
	"time"

	"golang.org/x/sys/unix"
)

// A processor that was idle takes 20 to 40 us to wake on a virtual machine, longer
// than many a reply takes to come. So a wait begins by looking, giving way to
// whoever else wants the processor, while the waits of late were that short.
const (
	spinFor   = 60 * time.Microsecond
	shortWait = 2 * spinFor
	trust     = 4 // how many short waits one long one outweighs
)

// Patience knows whether the waits of late were short. One goroutine uses it at a
// time. The zero value is ready.
type Patience struct{ short int }

// spin looks until ready holds or it has looked for long enough, and reports
// whether ready holds.
func (p *Patience) spin(ready func() bool) bool {
	if p.short <= 0 {
		return false
	}
	for begin := time.Now(); time.Since(begin) < spinFor; {
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
	if waited < shortWait {
		p.short = min(p.short+1, 2*trust)
		return
	}
	p.short = max(p.short-trust, 0)
}
