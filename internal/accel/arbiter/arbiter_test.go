package arbiter

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
)

const ms = time.Millisecond

func grantOf(id outboard.SessionID, quantum, yield time.Duration) Action {
	return Action{Session: id, Verb: Grant, Quantum: quantum, Yield: yield}
}

func TestScenario(t *testing.T) {
	a := New(Options{})
	a.Join("a", outboard.LeaseID("a"), 1)
	a.Join("b", outboard.LeaseID("b"), 1)
	steps := []struct {
		what string
		got  []Action
		want []Action
	}{
		{"one alone is left in peace", a.Active("a", 0), nil},
		{"the second makes it contended", a.Active("b", 1*ms), []Action{{Session: "a", Verb: Contend}, {Session: "b", Verb: Contend}}},
		{"the first session to request gets the turn", a.Request("b", 0, 2*ms), []Action{grantOf("b", 2*ms, 2*ms)}},
		{"the other waits", a.Request("a", 0, 3*ms), nil},
		{"and is next", a.Request("b", 2*ms, 4*ms), []Action{grantOf("a", 2*ms, ms)}},
		{"a turn ended without another", a.End("a", 1*ms, 5*ms), []Action{grantOf("b", ms/2, ms/2)}},
		{"the dead one's turn passes on", a.Request("a", 0, 6*ms), nil},
		{"alone again", a.Leave("b", 7*ms), []Action{{Session: "a", Verb: Relax}}},
		{"nobody knows the dead", a.Request("b", 0, 8*ms), nil},
	}
	for _, step := range steps {
		if diff := cmp.Diff(step.got, step.want); diff != "" {
			t.Errorf("%s:\n%s", step.what, diff)
		}
	}
}

func TestDeadHolder(t *testing.T) {
	a := New(Options{})
	for _, id := range []outboard.SessionID{"a", "b", "c"} {
		a.Join(id, outboard.LeaseID(id), 1)
		a.Request(id, 0, 0)
	}
	a.Request("a", ms, ms) // now b has it
	if got := a.Leave("b", 2*ms); len(got) != 1 || got[0].Verb != Grant {
		t.Errorf("after the holder's death: %v, want a grant", got)
	}
}

func TestPatience(t *testing.T) {
	a := New(Options{Patience: 10 * ms})
	a.Join("a", outboard.LeaseID("a"), 1)
	a.Join("b", outboard.LeaseID("b"), 1)
	a.Active("a", 0)
	a.Active("b", 0)
	a.Request("a", 0, 0)
	if _, ok := a.Deadline(); ok {
		t.Error("a deadline although nobody waits")
	}
	a.Request("b", 0, ms)
	if at, ok := a.Deadline(); !ok || at != 10*ms {
		t.Errorf("deadline %v, %v; want 10ms", at, ok)
	}
	if got := a.Tick(9 * ms); got != nil {
		t.Errorf("Tick too early: %v", got)
	}
	if diff := cmp.Diff(a.Tick(10*ms), []Action{grantOf("b", 2*ms, 2*ms)}); diff != "" {
		t.Error(diff)
	}
}

// device plays sessions that always have work on one device.
type device struct {
	arbiter *Arbiter
	now     time.Duration
	used    map[outboard.SessionID]time.Duration
	lie     map[outboard.SessionID]bool
	kernel  func(outboard.SessionID) time.Duration
	next    []Action
}

func (d *device) run(until time.Duration) {
	for d.now < until {
		var turn *Action
		for i := range d.next {
			if d.next[i].Verb == Grant {
				turn = &d.next[i]
			}
		}
		if turn == nil {
			return
		}
		start := d.now
		for d.now-start < turn.Quantum { // kernels are not interrupted
			d.now += d.kernel(turn.Session)
		}
		used := d.now - start
		d.used[turn.Session] += used
		if d.lie[turn.Session] {
			used = 0
		}
		d.next = d.arbiter.Request(turn.Session, used, d.now)
	}
}

func (d *device) join(id outboard.SessionID, weight int) {
	d.arbiter.Join(id, outboard.LeaseID(id), weight)
	d.arbiter.Active(id, d.now)
	d.next = append(d.next, d.arbiter.Request(id, 0, d.now)...)
}

func newDevice(kernel func(outboard.SessionID) time.Duration) *device {
	return &device{
		arbiter: New(Options{}), kernel: kernel,
		used: map[outboard.SessionID]time.Duration{}, lie: map[outboard.SessionID]bool{},
	}
}

// TestShares: device time follows weights, whatever the kernels' lengths.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kernels := map[outboard.SessionID]time.Duration{}
		d := newDevice(func(id outboard.SessionID) time.Duration { return kernels[id] })
		total := 0
		weights := map[outboard.SessionID]int{}
		for i := range rapid.IntRange(2, 6).Draw(t, "sessions") {
			id := outboard.SessionID(fmt.Sprint("s", i))
			kernels[id] = time.Duration(rapid.Int64Range(int64(10*time.Microsecond), int64(8*ms)).Draw(t, "kernel"))
			weights[id] = rapid.IntRange(1, 8).Draw(t, "weight")
			total += weights[id]
			d.join(id, weights[id])
		}
		d.run(6 * time.Second)
		for id, weight := range weights {
			got, want := float64(d.used[id])/float64(d.now), float64(weight)/float64(total)
			if math.Abs(got-want) > 0.03 {
				t.Fatalf("%s with weight %d of %d got %.3f of the device, want %.3f", id, weight, total, got, want)
			}
		}
	})
}

// TestNoCredit: who was idle for long does not get the device to itself then.
func TestNoCredit(t *testing.T) {
	for name, rest := range map[string]func(*Arbiter){
		"idle":   func(a *Arbiter) { a.Idle("late", 0) },
		"silent": func(a *Arbiter) { a.End("late", 0, 0) }, // active, and asks for nothing
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(func(outboard.SessionID) time.Duration { return ms })
			d.join("late", 1)
			rest(d.arbiter)
			d.next = nil
			d.join("x", 1)
			d.join("y", 1)
			d.run(10 * time.Second)
			before := d.used["x"] + d.used["y"]
			d.next = append(d.next, d.arbiter.Request("late", 0, d.now)...)
			d.run(13 * time.Second)
			late, others := d.used["late"], d.used["x"]+d.used["y"]-before
			if late > 1100*ms || others < 1900*ms {
				t.Errorf("of 3 s it got %v and the two others %v, want 1 s and 2 s", late, others)
			}
		})
	}
}

// TestLiar: reporting nothing helps by a factor of two at most.
func TestLiar(t *testing.T) {
	d := newDevice(func(outboard.SessionID) time.Duration { return ms })
	d.lie["liar"] = true
	d.join("liar", 1)
	d.join("honest", 1)
	d.run(3 * time.Second)
	if d.used["honest"] < 900*ms {
		t.Errorf("the honest one got %v of 3 s", d.used["honest"])
	}
}

// TestInvariants: at most one holder, and somebody holds whenever somebody waits.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		background := rapid.Bool().Draw(t, "background")
		a, now := New(Options{Background: background}), time.Duration(0)
		ids := []outboard.SessionID{"a", "b", "c", "d"}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(3*ms)).Draw(t, "pass"))
			id := rapid.SampledFrom(ids).Draw(t, "id")
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				if a.sessions[id] == nil {
					a.Join(id, outboard.LeaseID(id), 1)
				}
			case 1:
				a.Leave(id, now)
			case 2:
				a.Active(id, now)
			case 3:
				a.Idle(id, now)
			case 4:
				a.Request(id, now, now)
			case 5:
				a.End(id, 0, now)
			default:
				a.Tick(now)
			}
			holders, waiting := 0, 0
			for _, s := range a.sessions {
				if s.holds {
					holders++
				}
				if s.waiting {
					waiting++
				}
				if background && s.suspended != s.waiting {
					t.Fatalf("%s waits: %v, and is suspended: %v", s.id, s.waiting, s.suspended)
				}
			}
			if holders > 1 || waiting > 0 && holders == 0 {
				t.Fatalf("%d holders, %d waiting", holders, waiting)
			}
		}
	})
}

// A lease gets its share of the device, however many sessions it has, and each of them
// gets turns.
func TestSessionsOfOneLeaseShareItsWeight(t *testing.T) {
	a := New(Options{})
	leases := map[outboard.SessionID]outboard.LeaseID{"a": "victim", "b": "greedy", "c": "greedy", "d": "greedy", "e": "greedy"}
	for id, lease := range leases {
		a.Join(id, lease, 1)
	}
	var holder outboard.SessionID
	apply := func(actions []Action) {
		for _, action := range actions {
			if action.Verb == Grant {
				holder = action.Session
			}
		}
	}
	now := time.Duration(0)
	for id := range leases {
		apply(a.Request(id, 0, now))
	}
	turns := map[outboard.SessionID]int{}
	for range 800 {
		turns[holder]++
		now += 2 * time.Millisecond
		apply(a.Request(holder, 2*time.Millisecond, now))
	}
	if turns["a"] < 390 || turns["a"] > 410 {
		t.Errorf("the lease with one session got %d of 800 turns, want half", turns["a"])
	}
	for id, lease := range leases {
		if lease == "greedy" && (turns[id] < 90 || turns[id] > 110) {
			t.Errorf("session %s got %d turns, want an eighth", id, turns[id])
		}
	}
}

// A session whose turn was revoked by force is resumed when it says itself that it has nothing on
// the device any more, and so it is when it asks for another turn.
func TestSuspendedSessionsResume(t *testing.T) {
	for name, end := range map[string]func(a *Arbiter, now time.Duration) []Action{
		"ended": func(a *Arbiter, now time.Duration) []Action { return a.End("a", 0, now) },
		"again": func(a *Arbiter, now time.Duration) []Action { return a.Request("a", 0, now) },
	} {
		t.Run(name, func(t *testing.T) {
			a := New(Options{Preemptive: true, Patience: 10 * ms})
			for _, id := range []outboard.SessionID{"a", "b"} {
				a.Join(id, outboard.LeaseID(id), 1)
				a.Active(id, 0)
				a.Request(id, 0, 0)
			}
			at, ok := a.Deadline()
			if !ok {
				t.Fatal("a contended turn has no deadline")
			}
			if got := a.Tick(at); len(got) == 0 || got[0] != (Action{Session: "a", Verb: Suspend}) {
				t.Fatalf("at the deadline of its turn: %v, want a to be suspended", got)
			}
			if got := end(a, at+ms); len(got) == 0 || got[0] != (Action{Session: "a", Verb: Resume}) {
				t.Errorf("the actions are %v, want a to be resumed first", got)
			}
			if got := a.End("nobody", 0, at+2*ms); got != nil {
				t.Errorf("a session that is not known causes %v", got)
			}
		})
	}
}

// Where the device has a background, a session that waits for a turn is suspended until it begins,
// and a session that ends its turn and requests another one stays suspended.
func TestBackground(t *testing.T) {
	a := New(Options{Background: true})
	for _, id := range []outboard.SessionID{"a", "b"} {
		a.Join(id, outboard.LeaseID(id), 1)
		a.Active(id, 0)
	}
	act := func(id outboard.SessionID, v Verb) Action { return Action{Session: id, Verb: v} }
	steps := []struct {
		what string
		got  []Action
		want []Action
	}{
		{"the first turn", a.Request("a", 0, 0), []Action{grantOf("a", ms, ms/2)}},
		{"another session's work is suspended", a.Request("b", 0, ms), []Action{act("b", Suspend)}},
		{"until its turn", a.Request("a", ms, ms), []Action{act("b", Resume), grantOf("b", 2*ms, ms/2), act("a", Suspend)}},
		{"finishing work in the background", a.End("a", 0, 2*ms), []Action{act("a", Resume)}},
		{"and having more of it", a.Request("a", 0, 2*ms), []Action{act("a", Suspend)}},
		{"which a second request leaves suspended", a.Request("a", 0, 2*ms), nil},
		{"an overrun turn", a.Tick(10 * ms), []Action{act("b", Suspend), act("a", Resume), grantOf("a", 2*ms, 2*ms)}},
		{"and its end", a.End("b", 0, 11*ms), []Action{act("b", Resume)}},
	}
	for _, step := range steps {
		if diff := cmp.Diff(step.want, step.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}
