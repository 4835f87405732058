package remote

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxInlineTime is the time for which the connection's reader may serve a call.
	maxInlineTime = 20 * time.Microsecond
	// slowCalls is the number of calls of a slow method that get goroutines.
	slowCalls = 256
	// maxMethods bounds the names that a connection keeps.
	maxMethods = 1024
)

// method is the state of a method that the peer calls.
type method struct {
	name string
	slow atomic.Int32 // calls until the reader serves the method again
}

// mayRunInline reports whether to serve the next call in the reader.
func (m *method) mayRunInline() bool {
	if m.slow.Load() <= 0 {
		return true
	}
	m.slow.Add(-1)
	return false
}

// observe records how long the handler took.
func (m *method) observe(d time.Duration) {
	if d > maxInlineTime {
		m.slow.Store(slowCalls)
	}
}

// methods holds methods by name. The zero value is ready to use.
type methods struct {
	mu  sync.Mutex
	all map[string]*method
}

// intern returns the method of that name, creating it if necessary.
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
