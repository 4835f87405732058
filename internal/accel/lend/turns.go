package lend

import (
	"net"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/arbiter"
	"github.com/outboard-run/outboard/internal/accel/control"
)

// turns is the arbiter of one device with its clock and its sessions' sockets.
type turns struct {
	epoch time.Time
	// members counts the sessions of the device; the host's lock guards it.
	members int

	mu      sync.Mutex
	arbiter *arbiter.Arbiter
	workers map[outboard.SessionID]*control.Conn
	timer   *time.Timer
}

func newTurns() *turns {
	return &turns{epoch: time.Now(), arbiter: arbiter.New(arbiter.Options{}), workers: map[outboard.SessionID]*control.Conn{}}
}

// join adds a session that has no work yet.
func (t *turns) join(id outboard.SessionID, weight int, worker *control.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.workers[id] = worker
	t.arbiter.Join(id, weight)
}

// leave forgets a session.
func (t *turns) leave(id outboard.SessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.workers, id)
	t.act(t.arbiter.Leave(id, t.now()))
}

// hear passes on what a worker says about its work.
func (t *turns) hear(id outboard.SessionID, m control.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.Type {
	case control.TypeActive:
		t.act(t.arbiter.Active(id, t.now()))
	case control.TypeIdle:
		t.act(t.arbiter.Idle(id, t.now()))
	case control.TypeRequest:
		t.act(t.arbiter.Request(id, m.Used, t.now()))
	case control.TypeEnd:
		t.act(t.arbiter.End(id, m.Used, t.now()))
	default: // a newer worker may say more
	}
}

func (t *turns) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.act(t.arbiter.Tick(t.now()))
}

func (t *turns) now() time.Duration { return time.Since(t.epoch) }

// act tells the workers what the arbiter decided, and sets the clock for when it
// must decide again.
func (t *turns) act(actions []arbiter.Action) {
	for _, a := range actions {
		if worker := t.workers[a.Session]; worker != nil {
			// A worker that does not read ends by its own reader's error.
			_ = worker.Send(message(a))
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

func message(a arbiter.Action) control.Message {
	switch a.Verb {
	case arbiter.Contend:
		return control.Message{Type: control.TypeContended, On: true}
	case arbiter.Relax:
		return control.Message{Type: control.TypeContended}
	default:
		return control.Message{Type: control.TypeGrant, Quantum: a.Quantum}
	}
}

// impatient is a socket whose writes never wait long: the node speaks to a
// worker only a little, so a full socket is a worker that does not listen.
type impatient struct{ net.Conn }

func (c impatient) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}
