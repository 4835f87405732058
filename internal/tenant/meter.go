package tenant

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
)

// meter counts the calls of one function and keeps the durations of the last calls.
type meter struct {
	calls, failed atomic.Uint64

	mu    sync.Mutex
	times [128]time.Duration
	next  int // the number of durations recorded so far
}

// record adds a call. A call that was refused did not run and has no duration; a call that finds
// the lock taken is left out of the durations.
func (m *meter) record(took time.Duration, err error) {
	m.calls.Add(1)
	if err != nil {
		m.failed.Add(1)
	}
	if outboard.KindOf(err) == outboard.Busy {
		return
	}
	if !m.mu.TryLock() {
		return
	}
	m.times[m.next%len(m.times)] = took
	m.next++
	m.mu.Unlock()
}

// last returns the durations of the last calls, unordered.
func (m *meter) last() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.times[:min(m.next, len(m.times))])
}
