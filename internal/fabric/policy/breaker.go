package policy

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

type breakerRules struct {
	per     per
	ratio   float64       // of failures, that opens it
	least   int           // calls in the window before it may open
	window  time.Duration // over which calls count
	open    time.Duration // before probes
	probes  int           // that must go well to close it
	codes   []codes.Code  // that are failures
	refusal error
}

type breakerStep struct {
	*breakerRules
	policy *policy
	all    *breaker
	keys   *keyed[breaker]
}

func (r *breakerRules) bind(p *policy, old step, now time.Time) step {
	s := &breakerStep{breakerRules: r, policy: p}
	if o, ok := old.(*breakerStep); ok && o.per.by == r.per.by && o.per.text() == r.per.text() {
		s.all, s.keys = o.all, o.keys
		s.keys.limit(r.per.most)
		return s
	}
	s.all = newBreaker(now)
	s.keys = newKeyed(r.per.most, newBreaker)
	return s
}

// A breaker refuses calls while too many of them end badly. Closed, it counts how
// calls end; open, it refuses; half open, it lets a few calls through, and their
// ends decide.
type breaker struct {
	mu    sync.Mutex
	phase phase
	since time.Time // of the phase
	round uint64    // counts changes of phase: ends of calls of earlier ones don't count
	slots [breakerSlots]breakerSlot
	begun int // probes
	well  int // probes
}

type phase uint8

const (
	closed phase = iota
	open
	halfOpen
)

const breakerSlots = 10

// A breakerSlot has the ends of a tenth of the window.
type breakerSlot struct {
	number     int64
	total, bad int
}

func newBreaker(now time.Time) *breaker { return &breaker{since: now} }

func (s *breakerStep) begin(x *Exchange) error {
	if s.per.by == perAll {
		return s.enter(x, s.all, s.all)
	}
	key, err := s.per.key(x)
	if err != nil {
		return &evaluationError{err}
	}
	e := s.keys.pin(key, x.Now)
	if err := s.enter(x, e.value, e); err != nil {
		s.keys.unpin(e)
		return err
	}
	return nil
}

func (s *breakerStep) enter(x *Exchange, b *breaker, what any) error {
	round, ok := b.enter(s.breakerRules, x.Now)
	if !ok {
		return s.refusal
	}
	x.held = append(x.held, acquisition{owner: s, state: what, round: round})
	return nil
}

func (s *breakerStep) end(_ *Exchange, h acquisition, o Outcome) {
	switch what := h.state.(type) {
	case *breaker:
		what.leave(s.breakerRules, h.round, o)
	case *entry[breaker]:
		what.value.leave(s.breakerRules, h.round, o)
		s.keys.unpin(what)
	}
}

// enter says whether a call may pass, and in which round.
func (b *breaker) enter(r *breakerRules, now time.Time) (round uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Probes that don't end are given up for others after the same time.
	if full := b.phase == open || b.phase == halfOpen && b.begun >= r.probes; full && now.Sub(b.since) >= r.open {
		b.turn(halfOpen, now)
	}
	switch {
	case b.phase == open, b.phase == halfOpen && b.begun >= r.probes:
		return 0, false
	case b.phase == halfOpen:
		b.begun++
	}
	return b.round, true
}

// leave notes how a call ended.
func (b *breaker) leave(r *breakerRules, round uint64, o Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if round != b.round {
		return
	}
	bad := slices.Contains(r.codes, o.Code())
	switch {
	case o.refused, o.Moved:
		b.forget()
	case b.phase == halfOpen:
		b.probed(r, bad, o.Now)
	case b.phase == closed:
		b.count(r, bad, o.Now)
	}
}

// forget is for a call that another policy refused, or that goes on elsewhere: it was
// no probe.
func (b *breaker) forget() {
	if b.phase == halfOpen {
		b.begun--
	}
}

func (b *breaker) probed(r *breakerRules, bad bool, now time.Time) {
	if bad {
		b.turn(open, now)
		return
	}
	if b.well++; b.well >= r.probes {
		b.turn(closed, now)
	}
}

func (b *breaker) count(r *breakerRules, bad bool, now time.Time) {
	number := now.UnixNano() / max(1, int64(r.window)/breakerSlots)
	s := &b.slots[uint64(number)%breakerSlots]
	if s.number != number {
		*s = breakerSlot{number: number}
	}
	s.total++
	if !bad {
		return
	}
	s.bad++
	total, failures := b.sum(number)
	if total >= r.least && float64(failures) >= r.ratio*float64(total) {
		b.turn(open, now)
	}
}

// sum is over the slots that are not too old.
func (b *breaker) sum(number int64) (total, bad int) {
	for _, s := range b.slots {
		if age := number - s.number; age >= 0 && age < breakerSlots {
			total, bad = total+s.total, bad+s.bad
		}
	}
	return total, bad
}

func (b *breaker) turn(p phase, now time.Time) {
	b.phase, b.since = p, now
	b.round++
	b.begun, b.well = 0, 0
	b.slots = [breakerSlots]breakerSlot{}
}
