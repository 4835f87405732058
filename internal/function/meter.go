package function

import (
	"context"
	"errors"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// slice is how many instructions run between two visits to the host. It bounds how
// long the collector and a deadline wait: a fraction of a millisecond.
const slice = 1 << 18

var errCanceled = errors.New("the caller gave up")

// A meter hands fuel to the code of one instance, slice by slice.
type meter struct {
	global   api.MutableGlobal // below zero: the code comes to visit; nil without checks
	left     int64             // fuel not handed out yet
	given    int64             // fuel handed out
	done     <-chan struct{}   // the caller's
	begin    time.Time
	deadline time.Time
	stopped  error // why the code was told to stop
	limits   *Limits
}

const noFuelLimit = 1 << 62

// start begins a call.
func (m *meter) start(ctx context.Context, l *Limits) {
	m.left, m.given, m.stopped, m.limits = l.Fuel, 0, nil, l
	if l.Fuel == 0 {
		m.left = noFuelLimit
	}
	m.done = ctx.Done()
	m.begin = time.Now()
	m.deadline = m.begin.Add(l.Deadline)
	m.refill()
}

func (m *meter) refill() {
	if m.global == nil {
		return
	}
	n := min(m.left, slice)
	m.left -= n
	m.given += n
	m.global.Set(uint64(uint32(n)))
}

// used is the fuel that the call has used up.
func (m *meter) used() int64 {
	if m.global == nil {
		return 0
	}
	return m.given - int64(int32(m.global.Get()))
}

// visit is called by the code whose meter went below zero. When it stays below, the
// code traps. It returns false if nothing is below zero.
func (m *meter) visit() bool {
	if m.global == nil {
		return false
	}
	over := -int64(int32(m.global.Get()))
	if over <= 0 {
		return false
	}
	m.check()
	if m.stopped == nil && over > m.left {
		m.stopped = m.limits.fuelError()
	}
	if m.stopped == nil {
		m.left -= over
		m.given += over
		m.refill()
	}
	return true
}

// check looks whether the call must stop.
func (m *meter) check() {
	if m.stopped != nil {
		return
	}
	select {
	case <-m.done:
		m.stopped = errCanceled
		return
	default:
	}
	if !time.Now().Before(m.deadline) {
		m.stopped = m.limits.deadlineError()
	}
}

// goOn says whether a host function may go on; if not, the code traps when it returns.
func (m *meter) goOn() bool {
	if m.check(); m.stopped != nil {
		m.halt(m.stopped)
	}
	return m.stopped == nil
}

// bytesPerFuel is how many bytes moved by the host, or by one instruction, count as one.
const bytesPerFuel = 64

// move charges for bytes that the host moves for the code.
func (m *meter) move(bytes int) {
	if m.global != nil {
		now := int64(int32(m.global.Get())) - int64(bytes/bytesPerFuel)
		m.global.Set(uint64(uint32(int32(max(now, -1<<30)))))
	}
}

// halt makes the code trap at its next check.
func (m *meter) halt(why error) {
	if m.stopped == nil {
		m.stopped = why
	}
	if m.global == nil {
		return
	}
	m.given -= int64(int32(m.global.Get())) + 1
	m.global.Set(1<<32 - 1)
}

// sleep waits for a guest, but not longer than the call may take.
func (m *meter) sleep(d time.Duration) {
	if d = min(d, time.Until(m.deadline)); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-m.done:
		}
	}
	m.goOn()
}
