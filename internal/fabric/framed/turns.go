package framed

import "sync"

// Priority orders what waits for the connection.
type Priority int8

// The priorities. The zero value is Normal.
const (
	Low    Priority = -1
	Normal Priority = 0
	High   Priority = 1
)

// urgent is the class of what is queued, which is small.
const (
	urgent  = 3
	classes = 4
)

// mercy is how often a higher class may go first while a lower one waits.
const mercy = 15

// turns is a lock whose holder writes one frame to the connection. Of those who
// wait, the highest class goes first; and whoever has announced more frames of a
// higher class keeps lower ones waiting between its own.
type turns struct {
	mu      sync.Mutex
	free    [classes]sync.Cond
	held    bool
	waiting [classes]int
	granted [classes]int
	wanted  [classes]int
	skipped int
}

func (t *turns) init() {
	for i := range t.free {
		t.free[i].L = &t.mu
	}
}

// want announces frames, or, with -1, that there are no more.
func (t *turns) want(class, n int) {
	t.mu.Lock()
	t.wanted[class] += n
	if n < 0 && !t.held {
		t.grant()
	}
	t.mu.Unlock()
}

// busy says whether somebody writes, or soon will.
func (t *turns) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held || t.wanted != [classes]int{}
}

func (t *turns) lock(class int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[class]++
	if !t.held {
		t.grant()
	}
	for t.granted[class] == 0 {
		t.free[class].Wait()
	}
	t.granted[class]--
}

// tryLock is lock for who is most urgent and can't wait.
func (t *turns) tryLock() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		return false
	}
	t.held = true
	return true
}

func (t *turns) unlock() {
	t.mu.Lock()
	t.held = false
	t.grant()
	t.mu.Unlock()
}

// grant gives the lock to whoever is next. Locks: t.mu is held, and the lock free.
func (t *turns) grant() {
	class := t.next()
	if class < 0 {
		return
	}
	t.held = true
	t.waiting[class]--
	t.granted[class]++
	t.free[class].Signal()
}

func (t *turns) next() int {
	top, lowest := -1, -1
	for class := range classes {
		if t.waiting[class] > 0 {
			top = class
			if lowest < 0 {
				lowest = class
			}
		}
	}
	if top < 0 {
		return -1
	}
	kept := lowest < top
	for class := top + 1; class < classes; class++ {
		kept = kept || t.wanted[class] > 0
	}
	if !kept {
		t.skipped = 0
		return top
	}
	return t.nextOf(top, lowest)
}

// nextOf decides while somebody lower than the highest waits.
func (t *turns) nextOf(top, lowest int) int {
	t.skipped++
	if t.skipped > mercy {
		t.skipped = 0
		return lowest
	}
	for class := top + 1; class < classes; class++ {
		if t.wanted[class] > 0 {
			return -1 // comes at once
		}
	}
	return top
}
