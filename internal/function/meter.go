package function

import (
	"context"
	"errors"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// fuelSlice is how many instructions run between two visits to the host. It bounds how
// long the garbage collector and a deadline wait: a fraction of a millisecond.
const fuelSlice = 1 << 18

var errCanceled = errors.New("the caller gave up")

// meter issues fuel to the code of one instance, slice by slice.
type meter struct {
	global   api.MutableGlobal // below zero: the code calls the host; nil without checks
	left     int64             // fuel not issued yet
	issued   int64             // fuel handed out
	done     <-chan struct{}   // the caller's
	begin    time.Time
	deadline time.Time
	stopped  error // why the code has to trap
	limits   *Limits
}

const noFuelLimit = 1 << 62

// start begins a call.
func (m *meter) start(ctx context.Context, l *Limits) {
	m.left, m.issued, m.stopped, m.limits = l.Fuel, 0, nil, l
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
	n := min(m.left, fuelSlice)
	m.left -= n
	m.issued += n
	m.global.Set(uint64(uint32(n)))
}

// used returns the fuel that the call has used up.
func (m *meter) used() int64 {
	if m.global == nil {
		return 0
	}
	return m.issued - int64(int32(m.global.Get()))
}

// yield is called by code whose meter is below zero. If it stays there, the code traps. It returns
// false if the meter is not below zero.
func (m *meter) yield() bool {
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
		m.issued += over
		m.refill()
	}
	return true
}

// check sets stopped if the call must stop.
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

// mayContinue reports whether a host function may continue; if not, the code traps when it returns.
func (m *meter) mayContinue() bool {
	if m.check(); m.stopped != nil {
		m.trapAtNextCheck(m.stopped)
	}
	return m.stopped == nil
}

// bytesPerFuel is how many bytes copied by the host, or by one instruction, cost one unit.
const bytesPerFuel = 64

// chargeBytes charges for bytes that the host copies for the code.
func (m *meter) chargeBytes(bytes int) {
	if m.global != nil {
		now := int64(int32(m.global.Get())) - int64(bytes/bytesPerFuel)
		m.global.Set(uint64(uint32(int32(max(now, -1<<30)))))
	}
}

// trapAtNextCheck makes the code trap at its next meter check.
func (m *meter) trapAtNextCheck(why error) {
	if m.stopped == nil {
		m.stopped = why
	}
	if m.global == nil {
		return
	}
	m.issued -= int64(int32(m.global.Get())) + 1
	m.global.Set(1<<32 - 1)
}

// sleep waits for a duration, or until the call's deadline.
func (m *meter) sleep(d time.Duration) {
	if d = min(d, time.Until(m.deadline)); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-m.done:
		}
	}
	m.mayContinue()
}
