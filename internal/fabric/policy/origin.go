package policy

import (
	"sync/atomic"
	"time"
)

// origin is the time from which a state counts: that of its first use. A time read by the
// runtime has a monotonic part; counting from it instead of 1970 makes changes of the
// machine's clock harmless.
type origin struct{ at atomic.Pointer[time.Time] }

// since is the nanoseconds from the origin to now; 0 before it.
func (o *origin) since(now time.Time) int64 {
	at := o.at.Load()
	if at == nil {
		at = o.setFirst(now)
	}
	return max(0, int64(now.Sub(*at)))
}

// setFirst is a function of its own, so that only the first time escapes to the heap.
func (o *origin) setFirst(now time.Time) *time.Time {
	o.at.CompareAndSwap(nil, &now)
	return o.at.Load()
}
