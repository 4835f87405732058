package framed

import "sync"

// Priority orders the goroutines that wait to write to the connection.
type Priority int8

// The priorities. The zero value is Normal.
const (
	Low    Priority = -1
	Normal Priority = 0
	High   Priority = 1
)

// urgent is the class of queued frames, which are small.
const (
	urgent  = 3
	classes = 4
)

// maxSkips is the number of times that higher classes may overtake a waiting lower class.
const maxSkips = 15

// priorityLock is a lock whose holder writes one frame to the connection. The highest waiting
// class goes first, and a goroutine that has announced more frames of its class keeps lower
// classes waiting between its own frames.
type priorityLock struct {
	mu        sync.Mutex
	turn      [classes]sync.Cond
	held      bool
	waiting   [classes]int
	granted   [classes]int
	announced [classes]int
	skipped   int
}

func (t *priorityLock) init() {
	for i := range t.turn {
		t.turn[i].L = &t.mu
	}
}

// announce announces n more frames of a class; -1 withdraws the announcement of one.
func (t *priorityLock) announce(class, n int) {
	t.mu.Lock()
	t.announced[class] += n
	if n < 0 && !t.held {
		t.grant()
	}
	t.mu.Unlock()
}

// contended reports whether a goroutine writes or has announced frames.
func (t *priorityLock) contended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held || t.announced != [classes]int{}
}

func (t *priorityLock) lock(class int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[class]++
	if !t.held {
		t.grant()
	}
	for t.granted[class] == 0 {
		t.turn[class].Wait()
	}
	t.granted[class]--
}

// tryLock acquires the lock if it is free, and reports whether it was.
func (t *priorityLock) tryLock() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		return false
	}
	t.held = true
	return true
}

func (t *priorityLock) unlock() {
	t.mu.Lock()
	t.held = false
	t.grant()
	t.mu.Unlock()
}

// grant passes the lock to a waiting goroutine, if there is one. Locks: t.mu is held, and the lock
// free.
func (t *priorityLock) grant() {
	class := t.next()
	if class < 0 {
		return
	}
	t.held = true
	t.waiting[class]--
	t.granted[class]++
	t.turn[class].Signal()
}

func (t *priorityLock) next() int {
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
		kept = kept || t.announced[class] > 0
	}
	if !kept {
		t.skipped = 0
		return top
	}
	return t.nextContended(top, lowest)
}

// nextContended chooses the next class, or -1, while a class below the highest waits.
func (t *priorityLock) nextContended(top, lowest int) int {
	t.skipped++
	if t.skipped > maxSkips {
		t.skipped = 0
		return lowest
	}
	for class := top + 1; class < classes; class++ {
		if t.announced[class] > 0 {
			return -1 // its next frame comes at once
		}
	}
	return top
}
