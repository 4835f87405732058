package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard/internal/accel/control"
)

const (
	// linger is how long a turn is kept while the client prepares its next command: a program that
	// launches and waits in a loop would otherwise lose it after each launch.
	linger = 300 * time.Microsecond
	// idleAfter is the least time without work after which a session reports itself idle.
	idleAfter = 50 * time.Millisecond
	// mostBatch bounds the commands that are submitted to a contended device before the session
	// waits for them.
	mostBatch = 64
)

// drainer is the part of a Worker that a turnGate needs.
type drainer interface {
	// Drain waits for the submitted commands. Only the dispatcher calls it.
	Drain()
	// Busy reports whether commands were submitted since. Only the dispatcher calls it.
	Busy() bool
	// Working reports whether the device works for the session. Any goroutine may call it.
	Working() bool
}

// sender is the part of a control connection that a turnGate needs.
type sender interface {
	Send(control.Message) error
}

// turnGate makes the session keep to the turns in which the node shares a device. While the session
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
	// background is set where work that is submitted before a turn runs in the background. There a
	// session holds the turn as soon as it has requested one, and requested until the node grants it.
	background bool
	holds      bool
	since      time.Time
	quantum    time.Duration
	yield      time.Duration // part of the quantum after which a session that waits for its client ends its turn
	seen       uint64        // a session that waits for its client ends its turn after this
	rest       *time.Timer

	// Only for the dispatcher.
	batch, count int
	started      time.Time     // of the batch
	perCommand   time.Duration // of the last batch; 0: unknown
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
		if t.background {
			t.enterBackground()
			return
		}
		t.cond.Wait()
	}
}

// enterBackground begins to submit work before the turn is granted, one command at a time.
func (t *turnGate) enterBackground() {
	t.holds, t.since, t.quantum = true, time.Time{}, 0
	t.count, t.started, t.batch = 0, time.Now(), 1
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
// when the quantum is spent it ends the turn.
func (t *turnGate) endBatch() {
	if t.count++; t.count < t.batch && (t.requested || time.Since(t.since) < t.quantum) {
		return
	}
	started, count := t.started, t.count
	t.drain()
	t.perCommand = max(t.started.Sub(started)/time.Duration(count), time.Microsecond)
	if t.requested || !t.contended {
		return // the turn has not begun, or is void
	}
	t.batch = min(2*count, t.fittingBatch())
	if time.Since(t.since) >= t.quantum {
		t.holds = false
		t.request()
	}
}

// fittingBatch returns how many commands of the duration of the last ones fill half of the rest of
// the turn.
func (t *turnGate) fittingBatch() int {
	if t.perCommand == 0 {
		return 1
	}
	return min(max(int((t.quantum-time.Since(t.since))/2/t.perCommand), 1), mostBatch)
}

// drain waits for the device with the lock released: grants and the end of the contention must be
// received meanwhile.
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

// used returns the duration of the turn; no other session used the device meanwhile.
func (t *turnGate) used() time.Duration {
	if t.since.IsZero() {
		return 0
	}
	used := time.Since(t.since)
	t.since = time.Time{}
	return used
}

// Rest is called when the client has sent nothing more.
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
	if t.rest != nil {
		t.rest.Stop()
	}
	if t.requested || time.Since(t.since) >= t.yield {
		t.end()
		return
	}
	submits := t.submits.Load()
	t.rest = time.AfterFunc(linger, func() { t.endUnlessUsed(submits) })
}

// end ends the turn.
func (t *turnGate) end() {
	t.holds, t.requested = false, false
	t.send(control.Message{Type: control.TypeEnd, Used: t.used()})
}

// endUnlessUsed ends the turn unless commands were submitted since.
func (t *turnGate) endUnlessUsed(submits uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds && t.submits.Load() == submits {
		t.end()
	}
}

// checkIdle runs periodically while the session is active, and reports to the node when the session
// no longer is. A session that waits for a turn or for the device is active: otherwise other
// sessions would submit without limit meanwhile.
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

// setContended records whether the device is contended, and whether it has a background, as the
// node reports it.
func (t *turnGate) setContended(on, background bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.contended, t.background = on, background
	t.free.Store(t.active && !on)
	if !on {
		t.holds, t.requested, t.since = false, false, time.Time{}
	}
	t.cond.Broadcast()
}

func (t *turnGate) grant(quantum, yield time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested = false
	ended := t.background && !t.holds // before the session learned of its beginning
	if !t.contended || ended {
		return
	}
	t.holds, t.quantum, t.yield, t.since = true, quantum, yield, time.Now()
	t.count, t.started, t.batch = 0, t.since, t.fittingBatch()
	t.cond.Broadcast()
}

// send may fail when the node has ended; the connection's reader then ends the process.
func (t *turnGate) send(m control.Message) { _ = t.conn.Send(m) }
