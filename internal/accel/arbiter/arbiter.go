// Package arbiter decides which session may use a device next when several want
// to: weighted fair sharing in turns. It is pure: no clock, no I/O, no goroutine.
//
// # Model
//
// A session is active while it has work for the device. While one alone is
// active nobody asks for anything. From the second active session on the device
// is contended: each session asks for a turn before it submits work, gets it
// together with a quantum of device time, stops submitting when the quantum is
// spent, waits for what it submitted, and ends the turn by saying how long the
// device was busy. A kernel that runs is never interrupted.
//
// Each lease has a virtual time, which its sessions share: the device time that they used,
// divided by the lease's weight. The waiting session with the least virtual time gets the next turn.
// One that becomes active again starts at the least virtual time of those that
// are, so that idleness earns nothing; one that is active but asks for nothing earns
// little.
//
// A session is not quite trusted: what it reports is charged within what the
// caller's clock allows, and one that keeps its turn past Patience loses it, so
// that the others go on.
package arbiter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// Options of an Arbiter. The zero value works.
type Options struct {
	// Quantum is the device time of one turn; 2 ms by default.
	Quantum time.Duration
	// Patience is how long a turn may last while others wait; 1 s by default.
	// Device work can't be interrupted: it is then shared as the driver does it.
	Patience time.Duration
}

func (o *Options) setDefaults() {
	o.Quantum = cmp.Or(o.Quantum, 2*time.Millisecond)
	o.Patience = cmp.Or(o.Patience, time.Second)
}

// Verb is the kind of an Action.
type Verb int

// The verbs.
const (
	// Contend: ask for a turn before you submit work.
	Contend Verb = iota + 1
	// Relax: submit as you like; a turn that you wait for or hold is void.
	Relax
	// Grant: the turn is yours.
	Grant
)

// Action is a message for a session.
type Action struct {
	Session outboard.SessionID
	Verb    Verb
	// Quantum comes with a Grant.
	Quantum time.Duration
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
	notified  bool // that the device is contended
	waiting   bool
	grantedAt time.Duration // of the turn that it holds; the caller's clock
	holds     bool
}

// Arbiter serves one device. Times are readings of any monotonic clock.
type Arbiter struct {
	opts     Options
	sessions map[outboard.SessionID]*session
	accounts map[outboard.LeaseID]*account
}

// New makes an arbiter of a device without sessions.
func New(opts Options) *Arbiter {
	opts.setDefaults()
	return &Arbiter{opts: opts, sessions: make(map[outboard.SessionID]*session), accounts: make(map[outboard.LeaseID]*account)}
}

// Join adds an idle session of a lease. Weight is the lease's, at least 1.
func (a *Arbiter) Join(id outboard.SessionID, lease outboard.LeaseID, weight int) {
	shared := a.accounts[lease]
	if shared == nil {
		shared = &account{weight: max(weight, 1)}
		a.accounts[lease] = shared
	}
	shared.members++
	a.sessions[id] = &session{id: id, lease: lease, account: shared}
}

// Leave forgets a session that ended, in whatever state it was.
func (a *Arbiter) Leave(id outboard.SessionID, now time.Duration) []Action {
	if s := a.sessions[id]; s != nil {
		if s.members--; s.members == 0 {
			delete(a.accounts, s.lease)
		}
	}
	delete(a.sessions, id)
	return a.schedule(now)
}

// Active notes that the session has work.
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

// Idle notes that the session has no work.
func (a *Arbiter) Idle(id outboard.SessionID, now time.Duration) []Action {
	s := a.sessions[id]
	if s == nil || !s.active {
		return nil
	}
	a.charge(s, 0, now)
	s.active, s.waiting = false, false
	return a.schedule(now)
}

// Request ends the session's turn, if it has one, and asks for another. Used is
// how long the device worked in the turn.
func (a *Arbiter) Request(id outboard.SessionID, used, now time.Duration) []Action {
	s := a.sessions[id]
	if s == nil {
		return nil
	}
	wake := a.Active(id, now)
	if !s.waiting && !s.holds {
		a.capCredit(s)
	}
	a.charge(s, used, now)
	s.waiting = true
	return append(wake, a.schedule(now)...)
}

// End ends the session's turn without asking for another.
func (a *Arbiter) End(id outboard.SessionID, used, now time.Duration) []Action {
	s := a.sessions[id]
	if s == nil {
		return nil
	}
	a.charge(s, used, now)
	s.waiting = false
	return a.schedule(now)
}

// Tick revokes a turn that lasts too long. Call it at the time that Deadline returns.
func (a *Arbiter) Tick(now time.Duration) []Action {
	for _, s := range a.sessions {
		if s.holds && now-s.grantedAt >= a.opts.Patience {
			a.charge(s, now-s.grantedAt, now)
		}
	}
	return a.schedule(now)
}

// Deadline is when Tick has something to do, if nothing happens before.
func (a *Arbiter) Deadline() (time.Duration, bool) {
	for _, s := range a.sessions {
		if s.holds && a.anyWaiting() {
			return s.grantedAt + a.opts.Patience, true
		}
	}
	return 0, false
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

// charge ends the turn of s and adds to its virtual time what it reports as used, but no less
// than half of the turn's duration and no more than all of it.
func (a *Arbiter) charge(s *session, used, now time.Duration) {
	if !s.holds {
		return
	}
	s.holds = false
	lasted := max(now-s.grantedAt, 0)
	charged := min(max(used, lasted/2), lasted)
	s.used += charged
	s.virtual += charged / time.Duration(s.weight)
}

// schedule computes the actions that follow from a change: which sessions learn of contention
// or of its end, and which one gets the turn.
func (a *Arbiter) schedule(now time.Duration) []Action {
	contended := a.Contended()
	var actions []Action
	for _, s := range a.ordered() {
		switch {
		case contended && s.active && !s.notified:
			s.notified = true
			actions = append(actions, Action{Session: s.id, Verb: Contend})
		case s.notified && (!contended || !s.active):
			a.charge(s, 0, now)
			s.notified, s.waiting = false, false
			actions = append(actions, Action{Session: s.id, Verb: Relax})
		}
	}
	if next := a.nextHolder(); next != nil {
		next.waiting, next.holds, next.grantedAt = false, true, now
		actions = append(actions, Action{Session: next.id, Verb: Grant, Quantum: a.opts.Quantum})
	}
	return actions
}

// nextHolder returns the waiting session with the least virtual time, nil if there is none or
// another session holds the turn.
func (a *Arbiter) nextHolder() *session {
	var next *session
	for _, s := range a.ordered() {
		if s.holds {
			return nil
		}
		if s.waiting && (next == nil || cmp.Or(cmp.Compare(s.virtual, next.virtual), cmp.Compare(s.used, next.used)) < 0) {
			next = s
		}
	}
	return next
}

func (a *Arbiter) anyWaiting() bool {
	for _, s := range a.sessions {
		if s.waiting {
			return true
		}
	}
	return false
}

// maxCredit is the virtual time that a session keeps that asks for nothing for a while.
// Between two commands a program's own work should cost it no turns.
const maxCredit = 50 * time.Millisecond

// capCredit bounds the virtual time that a session has saved while it did not ask for turns to
// maxCredit behind the least of the others.
func (a *Arbiter) capCredit(s *session) {
	var least time.Duration
	others := false
	for _, o := range a.sessions {
		if o.account != s.account && (o.waiting || o.holds) && (!others || o.virtual < least) {
			least, others = o.virtual, true
		}
	}
	if others {
		s.virtual = max(s.virtual, least-maxCredit)
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

// ordered is the sessions in an order that does not depend on the map's.
func (a *Arbiter) ordered() []*session {
	return slices.SortedFunc(maps.Values(a.sessions), func(x, y *session) int { return cmp.Compare(x.id, y.id) })
}
