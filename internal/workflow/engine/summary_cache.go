package engine

import (
	"sync"
	"time"
)

const (
	// maxCached bounds how many executions are cached, and maxOutput the size of an output that
	// is cached with one.
	maxCached = 20_000
	maxOutput = 1 << 10
)

// summaryCache caches descriptions of executions by the number of appends to their logs.
// All methods may be called by several goroutines.
type summaryCache struct {
	// keep is the retention. An execution that was seen less than that ago can't have been purged
	// and begun anew.
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
	// cut says that the execution's output is left out.
	cut bool
}

func newSummaryCache(keep time.Duration) *summaryCache {
	return &summaryCache{keep: keep, by: map[ID]*cachedSummary{}}
}

// get returns an execution that has not changed since it was cached, nil for none. With brief its
// output may be missing.
func (m *summaryCache) get(id ID, head uint64, brief bool) *Execution {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.by[id]
	if r == nil || r.head != head || r.cut && !brief || time.Since(r.seen) > m.keep {
		return nil
	}
	return &r.Execution
}

// put caches an execution, which must not be changed any more.
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
	for len(m.order) > maxCached {
		delete(m.by, m.order[0])
		m.order = m.order[1:]
	}
}
