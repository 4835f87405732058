package remote

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxInlineTime is how long the connection's reader may be away for a call.
	maxInlineTime = 20 * time.Microsecond
	// slowCalls is how many calls of a method that was not quick get goroutines.
	slowCalls = 256
	// maxMethods bounds the names that a connection keeps.
	maxMethods = 1024
)

// method is what is known of a method that the peer calls.
type method struct {
	name string
	slow atomic.Int32 // calls until it is tried in the reader again
}

// mayRunInline says whether to serve the next call in the reader.
func (m *method) mayRunInline() bool {
	if m.slow.Load() <= 0 {
		return true
	}
	m.slow.Add(-1)
	return false
}

// observe notes how long the handler was busy.
func (m *method) observe(d time.Duration) {
	if d > maxInlineTime {
		m.slow.Store(slowCalls)
	}
}

// methods keeps them by name. The zero value is ready.
type methods struct {
	mu  sync.Mutex
	all map[string]*method
}

// intern finds or makes a method.
func (t *methods) intern(name []byte) *method {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.all[string(name)]; m != nil {
		return m
	}
	m := &method{name: string(name)}
	if t.all == nil {
		t.all = make(map[string]*method)
	}
	if len(t.all) < maxMethods {
		t.all[m.name] = m
	}
	return m
}
