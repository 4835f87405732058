package worker

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/arbiter"
	"github.com/outboard-run/outboard/internal/accel/control"
)

// queue is one direction of a control connection.
type queue chan control.Message

// Send implements sender.
func (q queue) Send(m control.Message) error {
	q <- m
	return nil
}

func newQueue() queue { return make(queue, 1000) }

// node gives turns on one device.
type node struct {
	mu      sync.Mutex
	epoch   time.Time
	arbiter *arbiter.Arbiter
	workers map[outboard.SessionID]queue
	turns   int
	idle    int // how often somebody was
}

// serve handles the messages of a worker.
func (n *node) serve(id outboard.SessionID, messages queue) {
	for m := range messages {
		n.mu.Lock()
		now := time.Since(n.epoch)
		switch m.Type {
		case control.TypeActive:
			n.act(n.arbiter.Active(id, now))
		case control.TypeIdle:
			n.idle++
			n.act(n.arbiter.Idle(id, now))
		case control.TypeRequest:
			n.act(n.arbiter.Request(id, m.Used, now))
		case control.TypeEnd:
			n.act(n.arbiter.End(id, m.Used, now))
		default: // nothing to arbitrate
		}
		n.mu.Unlock()
	}
}

func (n *node) act(actions []arbiter.Action) {
	for _, a := range actions {
		m := control.Message{Type: control.TypeContended, On: a.Verb == arbiter.Contend}
		if a.Verb == arbiter.Grant {
			n.turns++
			m = control.Message{Type: control.TypeGrant, Quantum: a.Quantum, Yield: a.Yield}
		}
		_ = n.workers[a.Session].Send(m)
	}
}

// device runs one kernel after the other.
type device struct {
	mu    sync.Mutex
	until time.Time
}

// user is a session of the device that always has work.
type user struct {
	device *device
	turns  *turnGate
	kernel time.Duration
	gap    time.Duration // of the program between two kernels, after waiting for the first
	late   time.Duration // after which it begins
	ahead  time.Duration // how much the device may have to do for it before it waits, 0 for any
	last   time.Time
	used   time.Duration
}

func (u *user) Busy() bool { return time.Now().Before(u.last) }
func (u *user) Drain()     { time.Sleep(time.Until(u.last)) }
func (u *user) Working() bool {
	u.device.mu.Lock()
	defer u.device.mu.Unlock()
	return u.Busy()
}

func (u *user) run(end time.Time) {
	time.Sleep(u.late)
	for time.Now().Before(end) {
		if u.ahead > 0 {
			time.Sleep(time.Until(u.last.Add(-u.ahead)))
		}
		u.turns.Submit()
		u.device.mu.Lock()
		if now := time.Now(); u.device.until.Before(now) {
			u.device.until = now
		}
		u.device.until = u.device.until.Add(u.kernel)
		u.last = u.device.until
		u.used += u.kernel
		u.device.mu.Unlock()
		if u.gap > 0 {
			u.Drain()
			u.turns.Rest()
			time.Sleep(u.gap)
		} else {
			time.Sleep(2 * time.Microsecond) // what a launch costs
		}
	}
	u.turns.Rest()
}

// play runs sessions with the given weights for two seconds of virtual time.
func play(t *testing.T, weights []int, shape func(i int, u *user)) (users []*user, n *node) {
	synctest.Test(t, func(*testing.T) {
		n = &node{epoch: time.Now(), arbiter: arbiter.New(arbiter.Options{}), workers: map[outboard.SessionID]queue{}}
		dev := &device{}
		var queues []queue
		var wg sync.WaitGroup
		for i, weight := range weights {
			id := outboard.SessionID(rune('a' + i))
			toNode, toWorker := newQueue(), newQueue()
			queues = append(queues, toNode, toWorker)
			n.workers[id] = toWorker
			n.arbiter.Join(id, outboard.LeaseID(id), weight)
			u := &user{device: dev, turns: newTurnGate(toNode)}
			u.turns.worker = u
			shape(i, u)
			users = append(users, u)
			go n.serve(id, toNode)
			go func() {
				for m := range toWorker {
					if m.Type == control.TypeGrant {
						u.turns.grant(m.Quantum, m.Yield)
					} else {
						u.turns.setContended(m.On, m.Background)
					}
				}
			}()
		}
		end := time.Now().Add(2 * time.Second)
		for _, u := range users {
			wg.Go(func() { u.run(end) })
		}
		wg.Wait()
		time.Sleep(10 * time.Second) // everybody is idle and has said so
		synctest.Wait()
		for _, q := range queues {
			close(q)
		}
		synctest.Wait()
	})
	return users, n
}

func TestSharing(t *testing.T) {
	tests := map[string]struct {
		weights []int
		shape   func(i int, u *user)
		want    []float64
	}{
		"equal weights, short and long kernels": {
			[]int{1, 1}, func(i int, u *user) { u.kernel = []time.Duration{20 * time.Microsecond, time.Millisecond}[i] }, []float64{0.5, 0.5},
		},
		"three to one": {
			[]int{3, 1}, func(_ int, u *user) { u.kernel = 100 * time.Microsecond }, []float64{0.75, 0.25},
		},
		"a loop that waits for each kernel keeps its share of turns": {
			[]int{1, 1}, func(i int, u *user) {
				u.kernel = 100 * time.Microsecond
				u.gap = []time.Duration{10 * time.Microsecond, 0}[i]
			}, []float64{0.48, 0.52},
		},
		// The second comes when the device has much to do for the first: who waits for that is
		// not idle, or the others would submit as much at once. Its share is a bit smaller.
		"programs that run far ahead of the device": {
			[]int{3, 1}, func(i int, u *user) {
				u.kernel, u.ahead, u.late = 500*time.Microsecond, 100*time.Millisecond, time.Duration(i)*10*time.Millisecond
			}, []float64{0.78, 0.22},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			users, n := play(t, test.weights, test.shape)
			total := time.Duration(0)
			for _, u := range users {
				total += u.used
			}
			if total < 1500*time.Millisecond {
				t.Errorf("the device worked %v of 2 s", total)
			}
			for i, u := range users {
				if got := float64(u.used) / float64(total); math.Abs(got-test.want[i]) > 0.04 {
					t.Errorf("session %d got %.3f of the device in %d turns, want %.2f", i, got, n.turns, test.want[i])
				}
			}
		})
	}
}

// TestUncontended: a session alone never asks.
func TestUncontended(t *testing.T) {
	users, n := play(t, []int{1}, func(_ int, u *user) { u.kernel = time.Microsecond })
	if n.turns != 0 || users[0].used < time.Second/2 {
		t.Errorf("%d turns, %v of work", n.turns, users[0].used)
	}
}

// TestIdle: who submits nothing is not idle before the device has done it all.
func TestIdle(t *testing.T) {
	_, n := play(t, []int{1}, func(_ int, u *user) { u.kernel, u.ahead = 300*time.Millisecond, time.Second })
	if n.idle != 1 {
		t.Errorf("idle %d times", n.idle)
	}
}

// waiter is the device of a session that submits commands one by one.
type waiter struct{ drained int }

func (w *waiter) Busy() bool  { return true }
func (w *waiter) Drain()      { w.drained++ }
func (*waiter) Working() bool { return false }

// types returns the types of the messages in a queue.
func (q queue) types() (types []control.Type) {
	for len(q) > 0 {
		types = append(types, (<-q).Type)
	}
	return types
}

// Where the device has a background, a session submits work before its turn begins, one command at
// a time.
func TestSubmitInTheBackground(t *testing.T) {
	sent, device := newQueue(), &waiter{}
	gate := newTurnGate(sent)
	gate.worker = device
	expect := func(what string, want ...control.Type) {
		t.Helper()
		if diff := cmp.Diff(want, sent.types()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	gate.setContended(true, true)
	gate.Submit() // returns although nothing was granted
	expect("the first command", control.TypeActive, control.TypeRequest)
	gate.Submit()
	gate.Submit()
	if expect("further commands"); device.drained != 2 {
		t.Errorf("waited for the device %d times, want after each command", device.drained)
	}
	gate.Rest()
	expect("waiting for the client before the turn", control.TypeEnd)
	gate.grant(time.Hour, time.Hour) // on its way meanwhile
	gate.Submit()
	expect("the next command", control.TypeRequest)
	gate.grant(time.Hour, time.Hour)
	gate.Submit()
	gate.Rest()
	expect("waiting for the client in the turn")
	gate.setContended(false, false)
	if !gate.free.Load() {
		t.Error("the session is not free without contention")
	}
}
