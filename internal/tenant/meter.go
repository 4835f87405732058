package tenant

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A meter counts the calls of one function. Times are of the last of them.
type meter struct {
	calls, failed atomic.Uint64
	running       atomic.Int64

	mu    sync.Mutex
	times [128]time.Duration
	next  int // how many there were
}

func (m *meter) begin() { m.running.Add(1) }

func (m *meter) end(took time.Duration, err error) {
	m.running.Add(-1)
	m.calls.Add(1)
	if err != nil {
		m.failed.Add(1)
	}
	if !m.mu.TryLock() {
		return // this one is not among the times
	}
	m.times[m.next%len(m.times)] = took
	m.next++
	m.mu.Unlock()
}

// quantiles are the times that half of the last calls, and all but a hundredth, took
// at most.
func (m *meter) quantiles() (p50, p99 time.Duration) {
	m.mu.Lock()
	times := slices.Clone(m.times[:min(m.next, len(m.times))])
	m.mu.Unlock()
	if len(times) == 0 {
		return 0, 0
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100]
}
