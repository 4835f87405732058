package arbiter

import (
	"slices"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

// shared are the processors of a machine with other programs: clocks that a test advances.
type shared struct {
	used, waited map[outboard.SessionID]time.Duration
}

func newShared() *shared {
	return &shared{used: map[outboard.SessionID]time.Duration{}, waited: map[outboard.SessionID]time.Duration{}}
}

func (s *shared) Used(id outboard.SessionID) time.Duration   { return s.used[id] }
func (s *shared) Waited(id outboard.SessionID) time.Duration { return s.waited[id] }

// overrunTurns has two sessions, a and b, overrun each of their turns for 20 seconds. In each turn
// execute has the processors work for the session. It returns for how long each had turns.
func overrunTurns(t *testing.T, processors Processors, weights [2]int, execute func(id outboard.SessionID, turn int, lasted time.Duration)) (held map[outboard.SessionID]time.Duration) {
	t.Helper()
	a := New(Options{Preemptive: true, Processors: processors})
	held = map[outboard.SessionID]time.Duration{}
	var actions []Action
	for i, id := range []outboard.SessionID{"a", "b"} {
		a.Join(id, outboard.LeaseID(id), weights[i])
		actions = append(actions, a.Request(id, 0, 0)...)
	}
	turns := map[outboard.SessionID]int{}
	for now := time.Duration(0); now < 20*time.Second; {
		grant := slices.IndexFunc(actions, func(a Action) bool { return a.Verb == Grant })
		if grant < 0 {
			t.Fatalf("at %v: %v, want a grant", now, actions)
		}
		id := actions[grant].Session
		next, ok := a.Deadline()
		if !ok {
			t.Fatalf("at %v nothing ends the turn of %s", now, id)
		}
		execute(id, turns[id], next-now)
		held[id] += next - now
		turns[id]++
		now = next
		actions = a.Tick(now)
	}
	return held
}

// Where other programs use the processors in most turns of one session, sessions get their shares
// of what is left: the processor time of their workers, not the time of their turns.
func TestSharesOfABusyMachine(t *testing.T) {
	processors := newShared()
	waits := map[outboard.SessionID]time.Duration{} // of a thread that has not run since
	held := overrunTurns(t, processors, [2]int{3, 1}, func(id outboard.SessionID, turn int, lasted time.Duration) {
		if id == "a" && turn%8 != 0 { // the kernel counts a wait when it ends
			waits[id] += lasted
			return
		}
		processors.waited[id] += waits[id]
		processors.used[id] += lasted
		waits[id] = 0
	})
	if ratio := processors.used["a"].Seconds() / processors.used["b"].Seconds(); ratio < 2.7 || ratio > 3.3 {
		t.Errorf("processor time in the ratio %.2f, want 3; the turns lasted %v", ratio, held)
	}
}

// A session whose threads sleep in its turns, or wait for each other, does not hold the device for
// longer than it is charged for, but for twice as long at most.
func TestIdleTurnsAreCharged(t *testing.T) {
	for name, test := range map[string]struct {
		sleeps func(turn int) bool
		most   float64 // of the victim's time
	}{
		"sleeps":                    {func(int) bool { return true }, 1.05},
		"sleeps and computes":       {func(turn int) bool { return turn%2 == 0 }, 1.05},
		"sleeps, and then contends": {func(turn int) bool { return turn%64 < 32 }, 2.1},
	} {
		t.Run(name, func(t *testing.T) {
			processors := newShared()
			held := overrunTurns(t, processors, [2]int{1, 1}, func(id outboard.SessionID, turn int, lasted time.Duration) {
				if id == "a" && test.sleeps(turn) {
					return
				}
				processors.used[id] += lasted
				if id == "a" && test.most > 2 { // each of a hundred threads waits for the others
					processors.waited[id] += lasted * 99 / 100
				}
			})
			if ratio := held["a"].Seconds() / held["b"].Seconds(); ratio > test.most || ratio < 0.95 {
				t.Errorf("turns in the ratio %.2f, want at most %.2f", ratio, test.most)
			}
		})
	}
}

// A refund delays others by no more than its bound.
func TestRefundsAreBounded(t *testing.T) {
	processors := newShared()
	longest, streak := time.Duration(0), time.Duration(0)
	overrunTurns(t, processors, [2]int{1, 1}, func(id outboard.SessionID, turn int, lasted time.Duration) {
		if id == "b" {
			processors.used[id] += lasted
			streak = 0
			return
		}
		if streak += lasted; turn > 5000/4 {
			longest = max(longest, streak)
		}
		switch {
		case turn < 5000/4: // a second and more without a processor
		case turn == 5000/4:
			processors.waited[id] = time.Hour
		default:
			processors.used[id] += lasted
		}
	})
	if most := (maxIdleness + 3) * 2 * ms; longest > most {
		t.Errorf("the other session waited for %v, want at most %v", longest, most)
	}
}
