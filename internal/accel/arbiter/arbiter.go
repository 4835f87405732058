// Package arbiter decides which of several competing sessions may use a device next: weighted fair
// sharing in turns. It is pure: no clock, no I/O, no goroutine.
//
// # Model
//
// A session is active while it has work for the device. A single active session needs no turns.
// From the second active session on the device is contended: each session requests a turn before it
// submits work, gets it together with a quantum of device time, stops submitting when the quantum
// is spent, waits for its submitted work, and ends the turn by reporting how long the device was
// busy.
//
// A kernel may run past its session's turn. On a preemptive device, whose work the caller can
// suspend, the turn then ends nevertheless: the session is suspended in the middle of its kernel
// and continues with its next turn. On other devices the turn ends with the kernel.
//
// A device with a background executes suspended work while the session that has the turn leaves the
// device unused. There a session submits work as soon as it has requested a turn: its work is
// suspended until the turn begins, so no time is lost between two turns. Work in the background is
// not charged, since it delays nobody.
//
// Each lease has a virtual time, which its sessions share: the device time that they used, divided
// by the lease's weight. The waiting session with the least virtual time gets the next turn. A
// session that becomes active again starts at the least virtual time of the active sessions, so
// that idleness earns nothing; an active session that makes no request earns little.
//
// A turn lasts until its session's virtual time is half a quantum past the least virtual time of
// the waiting sessions. So between two turns of a session that waits for each of its short kernels,
// a session that computes without a pause runs as long as those kernels take, and not a whole
// quantum: the latency of the first one doubles, which is its fair share. This is start-time fair
// queueing (Goyal, Vin and Cheng, SIGCOMM 1996) with a bounded lag.
//
// A session is not fully trusted: its reported time is charged within the limits that the caller's
// clock allows, and a session that keeps its turn past Patience loses it, so that the others
// continue.
package arbiter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// Options configure an Arbiter. The zero value works.
type Options struct {
	// Quantum is the maximum device time of one turn; 2 ms by default.
	Quantum time.Duration
	// Patience is how long a turn may last while other sessions wait on a device that is not
	// preemptive; 1 s by default. Afterwards the driver shares the device between the session's
	// work and that of others.
	Patience time.Duration
	// Preemptive reports that the caller executes Suspend and Resume.
	Preemptive bool
	// Background reports that suspended work continues while the session that has the turn leaves
	// the device unused. Sessions that wait for a turn are then suspended instead of blocked. It
	// implies Preemptive.
	Background bool
	// Processors, if not nil, measures the work of sessions where the device is the machine's
	// processors, which other programs use as well. Without it each session is charged as if its
	// threads had run throughout its turns.
	Processors Processors
}

// Processors are clocks of sessions whose device is the machine's processors. All count from any
// moment on.
type Processors interface {
	// Used returns the processor time that the threads of the session have used together.
	Used(id outboard.SessionID) time.Duration
	// Waited returns for how long that thread of the session which waited longest has waited for a
	// processor while it could have run.
	Waited(id outboard.SessionID) time.Duration
}

func (o *Options) setDefaults() {
	o.Quantum = cmp.Or(o.Quantum, 2*time.Millisecond)
	o.Patience = cmp.Or(o.Patience, time.Second)
	o.Preemptive = o.Preemptive || o.Background
}

// Verb is the kind of an Action.
type Verb int

// The verbs.
const (
	// Contend: the session must request a turn before it submits work.
	Contend Verb = iota + 1
	// Relax: the session may submit freely; a turn that it waits for or holds is void.
	Relax
	// Grant: the session has the turn.
	Grant
	// Suspend: the caller suspends the session's work on the device.
	Suspend
	// Resume: the caller lets suspended work continue. It grants no turn.
	Resume
)

// Action is a message for a session.
type Action struct {
	Session outboard.SessionID
	Verb    Verb
	// Quantum and Yield are set in a Grant. Yield is the part of Quantum after which a session that
	// has nothing to submit at the moment ends its turn.
	Quantum, Yield time.Duration
}

// account is a lease's use of the device: all sessions of a lease share it, so that a
// program gains nothing by more processes.
type account struct {
	weight  int
	virtual time.Duration // device time used, over weight
	members int
}

type session struct {
	id    outboard.SessionID
	lease outboard.LeaseID
	used  time.Duration // device time, for the order among the lease's sessions
	*account
	active    bool
	notified  bool // of the device's contention
	waiting   bool
	suspended bool          // in the middle of a turn, or before one, and waiting for the next one
	grantedAt time.Duration // start of the turn that it holds; the caller's clock
	idleness
	holds     bool
	overruns  bool          // its turn was revoked, and its work continues
	overrunAt time.Duration // time of the revocation
	endedAt   time.Duration // end of its last turn
}

// Arbiter serves one device. Times are readings of any monotonic clock.
type Arbiter struct {
	opts     Options
	sessions map[outboard.SessionID]*session
	accounts map[outboard.LeaseID]*account
	// overrunEnd is when the last work that continued after its turn ended.
	overrunEnd time.Duration
}

// New creates an arbiter of a device without sessions.
func New(opts Options) *Arbiter {
	opts.setDefaults()
	return &Arbiter{opts: opts, sessions: make(map[outboard.SessionID]*session), accounts: make(map[outboard.LeaseID]*account)}
}

// Join adds an idle session of a lease. The weight is the lease's, at least 1.
func (a *Arbiter) Join(id outboard.SessionID, lease outboard.LeaseID, weight int) {
	shared := a.accounts[lease]
	if shared == nil {
		shared = &account{weight: max(weight, 1)}
		a.accounts[lease] = shared
	}
	shared.members++
	a.sessions[id] = &session{id: id, lease: lease, account: shared}
}

// Leave removes a session in any state. The caller ends its suspended work.
func (a *Arbiter) Leave(id outboard.SessionID, now time.Duration) []Action {
	if s := a.sessions[id]; s != nil {
		a.endOverrun(s, now)
		if s.members--; s.members == 0 {
			delete(a.accounts, s.lease)
		}
	}
	delete(a.sessions, id)
	return a.schedule(now)
}

// Active records that the session has work.
func (a *Arbiter) Active(id outboard.SessionID, now time.Duration) []Action {
	s := a.sessions[id]
	if s == nil || s.active {
		return nil
	}
	if least, ok := a.leastVirtual(); ok {
		s.virtual = max(s.virtual, least)
	}
	for _, o := range a.sessions {
		if o.active && o.account == s.account {
			s.used = max(s.used, o.used)
		}
	}
	s.active = true
	return a.schedule(now)
}

// Idle records that the session has no work.
func (a *Arbiter) Idle(id outboard.SessionID, now time.Duration) []Action {
	s := a.sessions[id]
	if s == nil || !s.active {
		return nil
	}
	actions := a.endTurn(s, 0, now)
	s.active, s.waiting = false, false
	return append(actions, a.schedule(now)...)
}

// Request ends the session's turn, if it has one, and requests another. Used is how long the device
// worked in the turn.
func (a *Arbiter) Request(id outboard.SessionID, used, now time.Duration) []Action {
	s := a.sessions[id]
	if s == nil {
		return nil
	}
	wake := a.Active(id, now)
	if !s.waiting && !s.holds {
		a.capCredit(s)
	}
	if a.opts.Background { // it stays suspended until its next turn
		a.chargeTurn(s, used, now)
	} else {
		wake = append(wake, a.endTurn(s, used, now)...)
	}
	s.waiting = true
	return append(wake, a.schedule(now)...)
}

// End ends the session's turn without requesting another.
func (a *Arbiter) End(id outboard.SessionID, used, now time.Duration) []Action {
	s := a.sessions[id]
	if s == nil {
		return nil
	}
	actions := a.endTurn(s, used, now)
	s.waiting = false
	return append(actions, a.schedule(now)...)
}

// endTurn ends the turn of s, or the rest of a revoked one: the session itself reports that it has
// no work on the device any more.
func (a *Arbiter) endTurn(s *session, used, now time.Duration) []Action {
	a.chargeTurn(s, used, now)
	if !s.suspended {
		return nil
	}
	s.suspended = false
	return []Action{{Session: s.id, Verb: Resume}}
}

// chargeTurn charges s for the turn that it ends, or for the rest of a revoked one.
func (a *Arbiter) chargeTurn(s *session, used, now time.Duration) {
	a.endOverrun(s, now)
	a.charge(s, used, now)
}

// Tick revokes a turn that lasts too long. The caller must call it at the time that Deadline
// returns.
func (a *Arbiter) Tick(now time.Duration) []Action {
	if a.firstWaiting() == nil {
		return nil
	}
	var actions []Action
	for _, s := range a.ordered() {
		if !s.holds || now < a.turnEnd(s) {
			continue
		}
		a.charge(s, now-s.grantedAt, now)
		if a.opts.Preemptive {
			s.suspended, s.waiting = true, true
			actions = append(actions, Action{Session: s.id, Verb: Suspend})
		} else {
			s.overruns, s.overrunAt = true, now
		}
	}
	return append(actions, a.schedule(now)...)
}

// Deadline returns when Tick must be called, unless another event comes first.
func (a *Arbiter) Deadline() (time.Duration, bool) {
	for _, s := range a.sessions {
		if s.holds && a.firstWaiting() != nil {
			return a.turnEnd(s), true
		}
	}
	return 0, false
}

// overhead is the time that a session needs to end its turn, and the part of a turn that may pass
// before the session learns of it.
const overhead = 100 * time.Microsecond

// turnEnd returns when the turn of s is revoked if other sessions wait.
func (a *Arbiter) turnEnd(s *session) time.Duration {
	if !a.opts.Preemptive {
		return s.grantedAt + a.opts.Patience
	}
	quantum, _ := a.turnLength(s)
	return s.grantedAt + quantum + overhead
}

// turnLength returns the device time of the turn of s, as long as no other session begins to wait:
// a full quantum if no session waits or is about to. A session that has just ended a turn is about
// to: it waits for its client. Yield is the least device time of a session that is not behind.
func (a *Arbiter) turnLength(s *session) (quantum, yield time.Duration) {
	var next *session
	for _, o := range a.sessions {
		competes := o.waiting || o.active && s.grantedAt-o.endedAt < a.opts.Quantum/2
		if o.account != s.account && competes && (next == nil || o.virtual < next.virtual) {
			next = o
		}
	}
	most, least, lead := a.opts.Quantum, a.opts.Quantum/4, a.opts.Quantum/2
	if next == nil {
		return most, most
	}
	// The difference between virtual times of very different weights may be large.
	behind := min(next.virtual-s.virtual, 2*most) * time.Duration(s.weight)
	return min(max(behind+lead, least), most), min(max(behind-lead, least), most)
}

// Contended reports whether more than one session is active.
func (a *Arbiter) Contended() bool {
	count := 0
	for _, s := range a.sessions {
		if s.active {
			count++
		}
	}
	return count > 1
}

// charge ends the turn of s and adds the reported time to its virtual time, but no less than the
// turn's duration without the messages' delays, and no more than the duration. The part of the turn
// in which another session overran is charged to that session.
func (a *Arbiter) charge(s *session, used, now time.Duration) {
	if !s.holds {
		return
	}
	s.holds, s.endedAt = false, now
	lasted := max(now-s.grantedAt-a.overrun(s.grantedAt, now), 0)
	charged := min(max(used, lasted/2, lasted-2*overhead), lasted)
	a.use(s, charged-a.refund(s, charged))
}

func (a *Arbiter) use(s *session, used time.Duration) {
	s.used += used
	s.virtual += used / time.Duration(s.weight)
}

// endOverrun charges the work that continued after the turn of s was revoked.
func (a *Arbiter) endOverrun(s *session, now time.Duration) {
	if !s.overruns {
		return
	}
	s.overruns = false
	a.use(s, now-s.overrunAt)
	a.overrunEnd = max(a.overrunEnd, now)
}

// overrun returns how long a session overran its turn between from and to.
func (a *Arbiter) overrun(from, to time.Duration) time.Duration {
	for _, s := range a.sessions {
		if s.overruns {
			return to - max(from, s.overrunAt)
		}
	}
	return max(min(to, a.overrunEnd)-from, 0)
}

// schedule computes the actions that follow from a change: which sessions are notified of
// contention or its end, and which session gets the turn.
func (a *Arbiter) schedule(now time.Duration) []Action {
	contended := a.Contended()
	var actions []Action
	for _, s := range a.ordered() {
		switch {
		case contended && s.active && !s.notified:
			s.notified = true
			a.resetIdleness(s)
			actions = append(actions, Action{Session: s.id, Verb: Contend})
		case s.notified && (!contended || !s.active):
			actions = append(actions, a.endTurn(s, 0, now)...)
			s.notified, s.waiting = false, false
			actions = append(actions, Action{Session: s.id, Verb: Relax})
		}
	}
	if next := a.nextHolder(); next != nil {
		actions = append(actions, a.grant(next, now)...)
	}
	if a.opts.Background {
		actions = append(actions, a.suspendWaiting()...)
	}
	return actions
}

// suspendWaiting suspends the work of sessions that wait for their turns.
func (a *Arbiter) suspendWaiting() []Action {
	var actions []Action
	for _, s := range a.ordered() {
		if s.waiting && !s.suspended {
			s.suspended = true
			actions = append(actions, Action{Session: s.id, Verb: Suspend})
		}
	}
	return actions
}

// grant grants the turn to a waiting session.
func (a *Arbiter) grant(s *session, now time.Duration) []Action {
	var actions []Action
	if s.suspended {
		actions = append(actions, Action{Session: s.id, Verb: Resume})
	}
	s.waiting, s.suspended, s.holds, s.grantedAt = false, false, true, now
	a.beginIdleness(s)
	quantum, yield := a.turnLength(s)
	return append(actions, Action{Session: s.id, Verb: Grant, Quantum: quantum, Yield: yield})
}

// nextHolder returns the session to grant the turn to, nil if no session waits or a session holds
// the turn.
func (a *Arbiter) nextHolder() *session {
	for _, s := range a.sessions {
		if s.holds {
			return nil
		}
	}
	return a.firstWaiting()
}

// firstWaiting returns the waiting session with the least virtual time, and of one lease's sessions
// the least used one; nil if none waits.
func (a *Arbiter) firstWaiting() *session {
	var first *session
	for _, s := range a.sessions {
		if s.waiting && (first == nil || cmp.Or(cmp.Compare(s.virtual, first.virtual), cmp.Compare(s.used, first.used), cmp.Compare(s.id, first.id)) < 0) {
			first = s
		}
	}
	return first
}

// maxCredit bounds, in quanta of virtual time, the credit of a session that makes no request for a
// while. A program's own work between two commands should cost it no turns; but other sessions wait
// while credit is spent, and a session that rests in order to accumulate credit must not starve
// them.
const maxCredit = 2

// capCredit bounds the credit that a session has accumulated while it requested no turns to
// maxCredit quanta behind the least virtual time of the others.
func (a *Arbiter) capCredit(s *session) {
	var least time.Duration
	others := false
	for _, o := range a.sessions {
		if o.account != s.account && (o.waiting || o.holds) && (!others || o.virtual < least) {
			least, others = o.virtual, true
		}
	}
	if others {
		s.virtual = max(s.virtual, least-maxCredit*a.opts.Quantum)
	}
}

func (a *Arbiter) leastVirtual() (least time.Duration, ok bool) {
	for _, s := range a.sessions {
		if s.active && (!ok || s.virtual < least) {
			least, ok = s.virtual, true
		}
	}
	return least, ok
}

// ordered returns the sessions in an order that does not depend on the map's.
func (a *Arbiter) ordered() []*session {
	return slices.SortedFunc(maps.Values(a.sessions), func(x, y *session) int { return cmp.Compare(x.id, y.id) })
}
