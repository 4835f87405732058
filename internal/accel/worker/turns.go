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
	// idleAfter is how long a session has no work before it says so, at least.
	idleAfter = 50 * time.Millisecond
	// mostBatch bounds the commands that are given to a contended device before
	// they are waited for.
	mostBatch = 64
)

// A device's user, as turns sees it.
type drainer interface {
	// Drain waits for what was submitted. Only the dispatcher calls it.
	Drain()
	// Busy reports whether something was submitted since. Only the dispatcher calls it.
	Busy() bool
	// Working reports whether the device has something to do. Any goroutine may ask.
	Working() bool
}

// turns keeps to the node's order of sessions on a device. While the session is
// the only active one, Submit is one atomic load and one add.
type turns struct {
	conn   *control.Conn
	worker drainer

	// free is set while the session is known to be active, and not contended.
	free    atomic.Bool
	submits atomic.Uint64

	mu        sync.Mutex
	cond      sync.Cond
	active    bool
	contended bool
	asked     bool
	holds     bool
	since     time.Time
	quantum   time.Duration
	seen      uint64 // submits when the ticker last looked
	rest      *time.Timer

	// The dispatcher's own.
	batch, count int
	started      time.Time // of the batch
}

func newTurns(conn *control.Conn) *turns {
	t := &turns{conn: conn, batch: 1}
	t.cond.L = &t.mu
	return t
}

// Submit waits until the session may use the device.
func (t *turns) Submit() {
	t.submits.Add(1)
	if !t.free.Load() {
		t.submit()
	}
}

func (t *turns) submit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.activate()
	if t.contended && t.holds {
		t.pace()
	}
	for t.contended && !t.holds {
		t.request()
		t.cond.Wait()
	}
}

// activate tells the node, once, that the session has work.
func (t *turns) activate() {
	if t.active {
		return
	}
	t.active, t.seen = true, t.submits.Load()
	t.free.Store(!t.contended)
	t.send(control.Message{Type: control.TypeActive})
	time.AfterFunc(idleAfter, t.look)
}

// pace keeps what is queued on the device short: after a batch of commands it
// waits for them, and when the quantum is spent it ends the turn. The size of a
// batch follows the length of the session's commands.
func (t *turns) pace() {
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
func (t *turns) drain() {
	t.mu.Unlock()
	t.worker.Drain()
	t.mu.Lock()
	t.count, t.started = 0, time.Now()
}

func (t *turns) request() {
	if t.asked {
		return
	}
	t.asked = true
	t.send(control.Message{Type: control.TypeRequest, Used: t.used()})
}

// used is how long the turn lasted: nobody else used the device meanwhile.
func (t *turns) used() time.Duration {
	if t.since.IsZero() {
		return 0
	}
	used := time.Since(t.since)
	t.since = time.Time{}
	return used
}

// Rest is called when the client has nothing more for us.
func (t *turns) Rest() {
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
func (t *turns) end(submits uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds && t.submits.Load() == submits {
		t.holds = false
		t.send(control.Message{Type: control.TypeEnd, Used: t.used()})
	}
}

// look runs while the session is active, and finds out when it no longer is: while it
// waits for a turn or for the device it is, or others would submit as much as they like
// beside it.
func (t *turns) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	submits := t.submits.Load()
	if submits != t.seen || t.asked || t.worker.Working() {
		t.seen = submits
		time.AfterFunc(idleAfter, t.look)
		return
	}
	t.active, t.holds = false, false
	t.free.Store(false)
	t.send(control.Message{Type: control.TypeIdle})
}

// contend is the node's word on whether others use the device.
func (t *turns) contend(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.contended = on
	t.free.Store(t.active && !on)
	if !on {
		t.holds, t.asked, t.since = false, false, time.Time{}
	}
	t.cond.Broadcast()
}

func (t *turns) grant(quantum time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = false
	if !t.contended {
		return
	}
	t.holds, t.quantum, t.since = true, quantum, time.Now()
	t.count, t.started = 0, t.since
	t.cond.Broadcast()
}

// send may fail when the node is gone; the connection's reader ends us then.
func (t *turns) send(m control.Message) { _ = t.conn.Send(m) }
