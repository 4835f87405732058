package engine

import (
	"sync"
	"time"
)

const (
	// maxRemembered bounds how many executions are remembered, and maxOutput how large an
	// output is remembered with one.
	maxRemembered = 20_000
	maxOutput     = 1 << 10
)

// summaryCache caches descriptions of executions by the number of appends to their logs.
// All methods may be called by several goroutines.
type summaryCache struct {
	// keep is the retention. What was seen less than that ago can't have been purged and
	// begun anew.
	keep time.Duration

	mu    sync.Mutex
	by    map[ID]*cachedSummary
	order []ID
}

// cachedSummary is an execution as it was when its log had so many appends.
type cachedSummary struct {
	Execution

	head uint64
	seen time.Time
	// cut says that its output is left out.
	cut bool
}

func newMemory(keep time.Duration) *summaryCache {
	return &summaryCache{keep: keep, by: map[ID]*cachedSummary{}}
}

// get returns an execution that has not changed since it was remembered, nil for none. A
// brief one may be without its output.
func (m *summaryCache) get(id ID, head uint64, brief bool) *Execution {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.by[id]
	if r == nil || r.head != head || r.cut && !brief || time.Since(r.seen) > m.keep {
		return nil
	}
	return &r.Execution
}

// put remembers an execution, which is not changed any more.
func (m *summaryCache) put(x *Execution, head uint64) {
	r := &cachedSummary{Execution: *x, head: head, seen: time.Now()}
	if x.Status.Over() {
		r.seen = x.Ended
	}
	if len(x.Output) > maxOutput {
		r.Output, r.cut = nil, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by[x.ID] == nil {
		m.order = append(m.order, x.ID)
	}
	m.by[x.ID] = r
	for len(m.order) > maxRemembered {
		delete(m.by, m.order[0])
		m.order = m.order[1:]
	}
}
