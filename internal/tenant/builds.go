package tenant

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

const (
	// buildsAtOnce is how many versions are built at the same time: one alone uses all
	// processors for most of its time, and much memory.
	buildsAtOnce = 2
	// smallShare is the share of the smallest version under way that one may have at most to be
	// built besides: so that a small one never waits for large ones, and all of them together
	// need little more than the large ones.
	smallShare = 4
)

// builds says whose turn it is to be built: the smallest first. The zero value is idle.
type builds struct {
	mu      sync.Mutex
	running []int64 // their sizes
	waiting []*turn // the smallest first
}

// A turn is somebody who waits.
type turn struct {
	size   int64
	begins chan struct{}
}

// take waits for the turn of a version with so many bytes of modules. Who has it gives it back.
func (b *builds) take(ctx context.Context, size int64) error {
	t := &turn{size, make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, t)
	slices.SortStableFunc(b.waiting, func(x, y *turn) int { return cmp.Compare(x.size, y.size) })
	b.next()
	b.mu.Unlock()
	select {
	case <-t.begins:
		return nil
	case <-ctx.Done():
		b.leave(t)
		return ctx.Err()
	}
}

// leave takes one away who waits no longer.
func (b *builds) leave(t *turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, t); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return
	}
	b.end(t.size)
}

// give ends a turn.
func (b *builds) give(size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(size)
}

// end is give for who has the lock.
func (b *builds) end(size int64) {
	i := slices.Index(b.running, size)
	b.running = slices.Delete(b.running, i, i+1)
	b.next()
}

// next lets those begin for whom there is room.
func (b *builds) next() {
	for len(b.waiting) > 0 {
		t := b.waiting[0]
		if len(b.running) >= buildsAtOnce && t.size > slices.Min(b.running)/smallShare {
			return
		}
		b.waiting = b.waiting[1:]
		b.running = append(b.running, t.size)
		close(t.begins)
	}
}
