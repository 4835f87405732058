// Package lograte bounds the rate of the log lines that others cause: processes that run foreign
// code, and peers that nobody has identified. Lines beyond the bound are counted.
package lograte

import (
	"sync"
	"time"
)

// Burst and Interval are the bounds of a Limit: a burst of Burst lines, and then one per Interval.
const (
	Burst    = 100
	Interval = 100 * time.Millisecond
)

// A Limit bounds the lines of one source (a token bucket). The zero value is full. Any number of
// goroutines may use it.
type Limit struct {
	mu      sync.Mutex
	used    int // tokens that are missing
	refill  time.Time
	dropped int
}

// Allow reports whether another line may be written, and how many lines were dropped since the last
// one that was.
func (l *Limit) Allow(now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := int(now.Sub(l.refill) / Interval); n > 0 {
		l.used, l.refill = max(l.used-n, 0), now
	}
	if l.used == Burst {
		l.dropped++
		return 0, false
	}
	l.used++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}
