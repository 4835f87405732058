package lend

import (
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/arbiter"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/cgroup"
)

// deviceTurns is the arbiter of one device with its clock and its sessions' sockets.
type deviceTurns struct {
	epoch time.Time
	// members counts the sessions of the device; the host's lock guards it.
	members int

	mu      sync.Mutex
	arbiter *arbiter.Arbiter
	workers map[outboard.SessionID]*turnWorker
	holder  *leasePriority // of the session that was granted the last turn
	timer   *time.Timer
	// background reports that suspended work continues in the background.
	background bool
}

// turnWorker is a worker that shares the device.
type turnWorker struct {
	conn *control.Conn
	priority
	unanswered int // grants since the worker's last message
	executes   int // process number of the process that executes its kernels; 0: not looked up
}

// maxUnanswered bounds the grants that a worker gets without a message from it. On a busy machine a
// worker may have many turns in which none of its threads runs, or only its kernel's: the grants
// would fill its socket, which would end it. Without the later ones it only ends its turn earlier.
const maxUnanswered = 8

// newTurns creates the arbiter of a device. Where the device is the machine's processor, kernels
// run in their worker's own threads, so they are suspended with it: in the background if control
// groups have an idle class, else by stopping the worker. The kernels of other devices can't be
// interrupted from outside their driver.
func newTurns(device outboard.DeviceType, groups *cgroup.Tree) *deviceTurns {
	preemptive := device == outboard.CPU
	background := preemptive && groups.CanIdle()
	workers := map[outboard.SessionID]*turnWorker{}
	options := arbiter.Options{Preemptive: preemptive, Background: background}
	if preemptive && !background { // in the background workers compute outside their turns, too
		options.Processors = workerClocks(workers)
	}
	return &deviceTurns{epoch: time.Now(), arbiter: arbiter.New(options), workers: workers, background: background}
}

// join adds a session that has no work yet.
func (t *deviceTurns) join(id outboard.SessionID, lease outboard.LeaseID, weight int, worker *turnWorker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.workers[id] = worker
	t.arbiter.Join(id, lease, weight)
}

// leave removes a session.
func (t *deviceTurns) leave(id outboard.SessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if worker := t.workers[id]; worker != nil {
		worker.resume(t.holder)
		worker.close()
	}
	delete(t.workers, id)
	t.apply(t.arbiter.Leave(id, t.now()))
}

// handleMessage passes a worker's message about its work to the arbiter.
func (t *deviceTurns) handleMessage(id outboard.SessionID, m control.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if worker := t.workers[id]; worker != nil {
		worker.unanswered = 0
	}
	switch m.Type {
	case control.TypeActive:
		t.apply(t.arbiter.Active(id, t.now()))
	case control.TypeIdle:
		t.apply(t.arbiter.Idle(id, t.now()))
	case control.TypeRequest:
		t.apply(t.arbiter.Request(id, m.Used, t.now()))
	case control.TypeEnd:
		t.apply(t.arbiter.End(id, m.Used, t.now()))
	default: // a newer worker may send other messages
	}
}

func (t *deviceTurns) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apply(t.arbiter.Tick(t.now()))
}

func (t *deviceTurns) now() time.Duration { return time.Since(t.epoch) }

// apply sends the arbiter's decisions to the workers, and sets the timer for its next decision.
func (t *deviceTurns) apply(actions []arbiter.Action) {
	for _, a := range actions {
		if worker, ok := t.workers[a.Session]; ok {
			t.execute(worker, a)
		}
	}
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	if at, ok := t.arbiter.Deadline(); ok {
		t.timer = time.AfterFunc(at-t.now(), t.tick)
	}
}

// execute carries out a decision of the arbiter. A worker that does not read its socket ends by its
// own reader's error.
func (t *deviceTurns) execute(w *turnWorker, a arbiter.Action) {
	switch a.Verb {
	case arbiter.Contend:
		_ = w.conn.Send(control.Message{Type: control.TypeContended, On: true, Background: t.background})
	case arbiter.Relax:
		_ = w.conn.Send(control.Message{Type: control.TypeContended})
	case arbiter.Grant:
		t.recordHolder(w.lease)
		w.grant(a.Quantum, a.Yield)
	case arbiter.Suspend:
		w.suspend(t.holder)
	case arbiter.Resume:
		w.resume(t.holder)
	}
}

// grant tells the worker that it has the turn, unless it has read none of the last grants.
func (w *turnWorker) grant(quantum, yield time.Duration) {
	if w.unanswered == maxUnanswered {
		return
	}
	w.unanswered++
	_ = w.conn.Send(control.Message{Type: control.TypeGrant, Quantum: quantum, Yield: yield})
}

// recordHolder records the lease that has the turn.
func (t *deviceTurns) recordHolder(lease *leasePriority) {
	last := t.holder
	t.holder = lease
	lease.update(t.holder)
	last.update(t.holder)
}
