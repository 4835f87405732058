package tenant

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
)

// A meter counts the calls of one function. Times are of the last of them.
type meter struct {
	calls, failed atomic.Uint64

	mu    sync.Mutex
	times [128]time.Duration
	next  int // how many there were
}

func (m *meter) end(took time.Duration, err error) {
	m.calls.Add(1)
	if err != nil {
		m.failed.Add(1)
	}
	if outboard.KindOf(err) == outboard.Busy {
		return // it did not run, and says nothing of how long that takes
	}
	if !m.mu.TryLock() {
		return // this one is not among the times
	}
	m.times[m.next%len(m.times)] = took
	m.next++
	m.mu.Unlock()
}

// last are the times of the last calls, in no order.
func (m *meter) last() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.times[:min(m.next, len(m.times))])
}
