package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard/internal/accel/control"
)

const (
	// linger is how long a turn is kept while the client prepares its next
	// command: a program that launches and waits in a loop would lose it after
	// each launch otherwise.
	linger = 300 * time.Microsecond
	// idleAfter is the least time without work after which a session reports itself idle.
	idleAfter = 50 * time.Millisecond
	// mostBatch bounds the commands that are given to a contended device before
	// they are waited for.
	mostBatch = 64
)

// drainer is the part of a Worker that a turnGate needs.
type drainer interface {
	// Drain waits for what was submitted. Only the dispatcher calls it.
	Drain()
	// Busy reports whether something was submitted since. Only the dispatcher calls it.
	Busy() bool
	// Working reports whether the device has something to do. Any goroutine may ask.
	Working() bool
}

// sender is the part of a control connection that a turnGate needs.
type sender interface {
	Send(control.Message) error
}

// turnGate keeps the session to the order in which the node shares a device. While the session
// is the only active one, Submit is one atomic load and one add.
type turnGate struct {
	conn   sender
	worker drainer

	// free is set while the session is known to be active, and not contended.
	free    atomic.Bool
	submits atomic.Uint64

	mu        sync.Mutex
	cond      sync.Cond
	active    bool
	contended bool
	requested bool
	holds     bool
	since     time.Time
	quantum   time.Duration
	seen      uint64 // submits when the ticker last looked
	rest      *time.Timer

	// The dispatcher's own.
	batch, count int
	started      time.Time // of the batch
}

func newTurnGate(conn sender) *turnGate {
	t := &turnGate{conn: conn, batch: 1}
	t.cond.L = &t.mu
	return t
}

// Submit waits until the session may use the device.
func (t *turnGate) Submit() {
	t.submits.Add(1)
	if !t.free.Load() {
		t.submit()
	}
}

func (t *turnGate) submit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.announceActive()
	if t.contended && t.holds {
		t.endBatch()
	}
	for t.contended && !t.holds {
		t.request()
		t.cond.Wait()
	}
}

// announceActive reports to the node, once, that the session has work.
func (t *turnGate) announceActive() {
	if t.active {
		return
	}
	t.active, t.seen = true, t.submits.Load()
	t.free.Store(!t.contended)
	t.send(control.Message{Type: control.TypeActive})
	time.AfterFunc(idleAfter, t.checkIdle)
}

// endBatch keeps the device's queue short: after a batch of commands it waits for them, and
// when the quantum is spent it ends the turn. The size of a batch follows the length of the
// session's commands.
func (t *turnGate) endBatch() {
	if t.count++; t.count < t.batch && time.Since(t.since) < t.quantum {
		return
	}
	started := t.started
	t.drain()
	switch took := t.started.Sub(started); {
	case took < t.quantum/4:
		t.batch = min(2*t.batch, mostBatch)
	case took > t.quantum:
		t.batch = max(t.batch/2, 1)
	}
	if time.Since(t.since) >= t.quantum {
		t.holds = false
		t.request()
	}
}

// drain waits for the device with the lock open: grants and the end of the
// contention must get through.
func (t *turnGate) drain() {
	t.mu.Unlock()
	t.worker.Drain()
	t.mu.Lock()
	t.count, t.started = 0, time.Now()
}

func (t *turnGate) request() {
	if t.requested {
		return
	}
	t.requested = true
	t.send(control.Message{Type: control.TypeRequest, Used: t.used()})
}

// used returns how long the turn lasted; no other session used the device meanwhile.
func (t *turnGate) used() time.Duration {
	if t.since.IsZero() {
		return 0
	}
	used := time.Since(t.since)
	t.since = time.Time{}
	return used
}

// Rest is called when the client has nothing more for us.
func (t *turnGate) Rest() {
	if t.free.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.contended || !t.holds {
		return
	}
	if t.worker.Busy() {
		t.drain()
	}
	submits := t.submits.Load()
	if t.rest != nil {
		t.rest.Stop()
	}
	t.rest = time.AfterFunc(linger, func() { t.end(submits) })
}

// end gives the turn back unless something was submitted meanwhile.
func (t *turnGate) end(submits uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds && t.submits.Load() == submits {
		t.holds = false
		t.send(control.Message{Type: control.TypeEnd, Used: t.used()})
	}
}

// checkIdle runs periodically while the session is active, and reports to the node when the
// session no longer is. A session that waits for a turn or for the device is active: otherwise
// others would submit without limit beside it.
func (t *turnGate) checkIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	submits := t.submits.Load()
	if submits != t.seen || t.requested || t.worker.Working() {
		t.seen = submits
		time.AfterFunc(idleAfter, t.checkIdle)
		return
	}
	t.active, t.holds = false, false
	t.free.Store(false)
	t.send(control.Message{Type: control.TypeIdle})
}

// setContended begins or ends the contention for the device, as the node reports it.
func (t *turnGate) setContended(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.contended = on
	t.free.Store(t.active && !on)
	if !on {
		t.holds, t.requested, t.since = false, false, time.Time{}
	}
	t.cond.Broadcast()
}

func (t *turnGate) grant(quantum time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested = false
	if !t.contended {
		return
	}
	t.holds, t.quantum, t.since = true, quantum, time.Now()
	t.count, t.started = 0, t.since
	t.cond.Broadcast()
}

// send may fail when the node is gone; the connection's reader ends us then.
func (t *turnGate) send(m control.Message) { _ = t.conn.Send(m) }
