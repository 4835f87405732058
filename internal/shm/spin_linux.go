package shm

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// An idle processor takes 20 to 40 us to wake on a virtual machine, longer than many replies take
// to arrive. So while recent waits were that short, a wait starts by spinning, and yields the
// processor to other threads between its checks. It spins for up to twice the average wait, within
// bounds: large messages take longer than small ones, and both sides lose the time that a sleeper
// takes to wake.
//
// On a busy machine a spinning thread uses up its share of a processor that the other end, or a
// thread of the driver, waits for. So waits that spin and waits that sleep at once are measured
// apart, and the kind not chosen is tried now and then; sleeping more rarely, since on an idle
// machine it takes ten times as long. A wait sleeps at once while waits that spin take more than
// spinMargin times as long: a few disturbed waits don't make it so. The library's end does the same
// (cmd/libsession/ring/spin.h).
const (
	minSpin    = 60 * time.Microsecond
	maxSpin    = 150 * time.Microsecond
	shortWait  = 200 * time.Microsecond
	longWeight = 4 // short waits that one long wait cancels
	smoothing  = 4 // divisor of the moving averages of waits
	spinMargin = 2

	trySpinEvery  = 32  // waits, while they sleep
	trySleepEvery = 512 // waits, while they spin
)

// AdaptiveWait decides whether a wait spins before it sleeps (adaptive spinning), by the durations
// of recent waits. One goroutine uses it at a time. The zero value is ready to use.
type AdaptiveWait struct {
	short   int           // short waits in excess of long ones, weighted
	average time.Duration // moving average of waits, each counted up to shortWait

	spun, slept time.Duration // the same for waits that spun, and for waits that slept at once
	waits       uint          // that could spin
	spins       bool          // the wait in progress spins
}

// decide reports whether the wait that begins should spin.
func (p *AdaptiveWait) decide() bool {
	if p.short <= 0 {
		return false
	}
	p.waits++
	if p.spun <= spinMargin*p.slept {
		return p.waits%trySleepEvery != 0
	}
	return p.waits%trySpinEvery == 0
}

// spinLimit returns how long to spin. A spinning goroutine keeps its processor (a P of Go's
// scheduler), so it spins for longer than minSpin only if as many processors as spare remain.
func (p *AdaptiveWait) spinLimit(spare int32) (limit time.Duration, done func()) {
	limit = min(max(minSpin, 2*p.average), maxSpin)
	if limit == minSpin {
		return limit, func() {}
	}
	if heldProcessors.Add(1)+spare > int32(runtime.GOMAXPROCS(0)) {
		limit = minSpin
	}
	return limit, func() { heldProcessors.Add(-1) }
}

// spin calls ready until it returns true or the spin limit has passed, and reports
// whether it returned true. A long spin leaves a processor to the process's other goroutines.
func (p *AdaptiveWait) spin(ready func() bool) bool { return p.spinBeside(1, ready) }

// spinBeside is spin for a process that needs as many processors as spare during a long spin.
func (p *AdaptiveWait) spinBeside(spare int32, ready func() bool) bool {
	if p.spins = p.decide(); !p.spins {
		return false
	}
	limit, done := p.spinLimit(spare)
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

// observe records the duration of a wait.
func (p *AdaptiveWait) observe(waited time.Duration) {
	counted := min(waited, shortWait)
	p.average += (counted - p.average) / smoothing
	if p.spins {
		p.spun += (counted - p.spun) / smoothing
	} else {
		p.slept += (counted - p.slept) / smoothing
	}
	if waited < shortWait {
		p.short = min(p.short+1, 2*longWeight)
		return
	}
	p.short = max(p.short-longWeight, 0)
}
