package opencl

import (
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// What things are taken to cost in this process's memory: what we keep, and what
// a driver is known to keep. Too much is better than too little here.
const (
	objectCost  = 512
	commandCost = 1 << 10
	programCost = 256 << 10 // compiled, with its log and its kernels
)

// hostSlack is what a session may hold beyond its lease's memory, so that one with
// hardly any can have objects.
const hostSlack = 64 << 20

// mostWaits bounds the goroutines that wait for the driver. Each keeps a thread.
const mostWaits = 512

// A budget bounds the host memory that a client can make the worker hold:
// staging memory, objects, commands that are not known to be done.
type budget struct {
	limit int64
	used  atomic.Int64
}

// hostLimit is the budget of a session that may use memory bytes of the device: as
// much again of the host, but no more than a quarter of what the machine has.
func hostLimit(memory uint64) outboard.Bytes {
	var info unix.Sysinfo_t
	machine := uint64(math.MaxInt64)
	if unix.Sysinfo(&info) == nil {
		machine = product(info.Totalram, uint64(info.Unit))
	}
	return outboard.Bytes(min(memory, machine/4) + hostSlack)
}

// take reserves n bytes, if the limit allows.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit {
		return true
	}
	b.used.Add(-n)
	return false
}

// force counts n bytes that are there already.
func (b *budget) force(n int64) { b.used.Add(n) }

func (b *budget) give(n int64) { b.used.Add(-n) }

// room takes n bytes of the budget for the dispatcher's client, and waits for the
// device when that can help. When it can't the call has to fail.
func (w *Worker) room(n int64) bool {
	for tries := 0; ; tries++ {
		if w.host.take(n) {
			return true
		}
		w.staging.trim()
		if w.host.take(n) {
			return true
		}
		if tries > 0 || n > w.host.limit || !w.relieve() {
			return false
		}
	}
}

// relieve waits for all commands, so that what they hold becomes free. It reports
// false when that could last for ever: then the client has to go on first.
func (w *Worker) relieve() bool {
	if len(w.unresolved) > 0 {
		return false
	}
	w.drain()
	w.fault(w.synchronised())
	return true
}

// slot takes one of the places for goroutines that wait. It reports false when all
// are taken by such as may depend on what the client does next.
func (w *Worker) slot() bool {
	select {
	case w.slots <- struct{}{}:
		return true
	default:
	}
	if len(w.unresolved) > 0 {
		return false
	}
	w.flush()
	w.slots <- struct{}{}
	return true
}

// beside runs a function on a goroutine of its own when there is a slot.
func (w *Worker) beside(run func()) bool {
	if !w.slot() {
		return false
	}
	w.spawn(run)
	return true
}

// spawn runs a function in a slot that was taken.
func (w *Worker) spawn(run func()) {
	w.waits.Go(func() {
		defer func() { <-w.slots }()
		run()
	})
}
