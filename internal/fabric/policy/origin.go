package policy

import (
	"sync/atomic"
	"time"
)

// origin is the time from which a state measures time: the time of its first use. A time read by
// the runtime has a monotonic part; counting from it instead of 1970 makes changes of the machine's
// clock harmless.
type origin struct{ at atomic.Pointer[time.Time] }

// since returns the nanoseconds from the origin to now; 0 before the origin.
func (o *origin) since(now time.Time) int64 {
	at := o.at.Load()
	if at == nil {
		at = o.setFirst(now)
	}
	return max(0, int64(now.Sub(*at)))
}

// setFirst sets the origin unless it is set. It is a function of its own so that now escapes to the
// heap at the first use only.
func (o *origin) setFirst(now time.Time) *time.Time {
	o.at.CompareAndSwap(nil, &now)
	return o.at.Load()
}
