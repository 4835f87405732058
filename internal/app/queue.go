package app

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

const (
	// concurrentBuilds is how many versions are built at the same time: one alone uses all
	// processors for most of its time, and much memory.
	concurrentBuilds = 2
	// smallFraction admits a version beside these, if its size is at most this fraction of the
	// smallest version that is being built: a small version never waits for large ones, and all of
	// them together need little more than the large ones.
	smallFraction = 4
)

// buildQueue orders builds by size, the smallest first. The zero value is idle.
type buildQueue struct {
	mu      sync.Mutex
	running []int64  // sizes
	waiting []*build // sorted by size
}

// build is one waiting build.
type build struct {
	size     int64
	admitted chan struct{} // closed when it may begin
}

// acquire waits until a version with that many bytes of modules may be built. The caller
// releases it.
func (q *buildQueue) acquire(ctx context.Context, size int64) error {
	b := &build{size, make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, b)
	slices.SortStableFunc(q.waiting, func(x, y *build) int { return cmp.Compare(x.size, y.size) })
	q.admitLocked()
	q.mu.Unlock()
	select {
	case <-b.admitted:
		return nil
	case <-ctx.Done():
		q.withdraw(b)
		return ctx.Err()
	}
}

// withdraw removes a build that is not wanted any more, admitted or not.
func (q *buildQueue) withdraw(b *build) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, b); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return
	}
	q.releaseLocked(b.size)
}

// release ends a build.
func (q *buildQueue) release(size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseLocked(size)
}

func (q *buildQueue) releaseLocked(size int64) {
	i := slices.Index(q.running, size)
	q.running = slices.Delete(q.running, i, i+1)
	q.admitLocked()
}

// admitLocked admits waiting builds while the limits allow.
func (q *buildQueue) admitLocked() {
	for len(q.waiting) > 0 {
		b := q.waiting[0]
		if len(q.running) >= concurrentBuilds && b.size > slices.Min(q.running)/smallFraction {
			return
		}
		q.waiting = q.waiting[1:]
		q.running = append(q.running, b.size)
		close(b.admitted)
	}
}
