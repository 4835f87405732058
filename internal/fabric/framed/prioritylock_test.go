package framed

import (
	"runtime"
	"slices"
	"sync"
	"testing"
)

// TestTurns has frames of all classes wait while one is written.
func TestTurns(t *testing.T) {
	var l priorityLock
	l.init()
	l.lock(1)
	var mu sync.Mutex
	var got []int
	var all sync.WaitGroup
	for n, class := range []int{0, 1, 2, 1, urgent} {
		all.Go(func() {
			l.lock(class)
			mu.Lock()
			got = append(got, class)
			mu.Unlock()
			l.unlock()
		})
		for waiting(&l) <= n {
			runtime.Gosched()
		}
	}
	l.unlock()
	all.Wait()
	if want := []int{urgent, 2, 1, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func waiting(l *priorityLock) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		n += w
	}
	return n
}

// TestTurnsLowWaits has a high writer with many frames beside a low one: the low
// one gets a frame now and then, and all once the other is done.
func TestTurnsLowWaits(t *testing.T) {
	var l priorityLock
	l.init()
	const frames = 160
	low, before := 0, 0
	l.announce(2, 1)
	l.announce(0, 1)
	l.lock(2)
	var both sync.WaitGroup
	both.Go(func() {
		for range frames {
			l.lock(0)
			low++
			l.unlock()
		}
		l.announce(0, -1)
	})
	for waiting(&l) == 0 {
		runtime.Gosched()
	}
	l.unlock()
	for range frames {
		l.lock(2)
		before = low
		l.unlock()
	}
	l.announce(2, -1)
	both.Wait()
	if before == 0 || before > frames/4 || low != frames {
		t.Errorf("%d of %d low frames went before the last high one of %d", before, low, frames)
	}
}
