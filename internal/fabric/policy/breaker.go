package policy

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

type breakerRules struct {
	per     per
	ratio   float64       // ratio of failures that opens the breaker
	least   int           // calls in the window before the breaker may open
	window  time.Duration // time over which calls are counted
	open    time.Duration // time until probes are admitted
	probes  int           // probes that must succeed to close the breaker
	codes   []codes.Code  // status codes that count as failures
	refusal error
}

type breakerStep struct {
	*breakerRules
	policy *policy
	all    *breaker
	keys   *keyCache[breaker]
}

func (r *breakerRules) bind(p *policy, old step, now time.Time) step {
	s := &breakerStep{breakerRules: r, policy: p}
	if o, ok := old.(*breakerStep); ok && o.per.by == r.per.by && o.per.text() == r.per.text() {
		s.all, s.keys = o.all, o.keys
		s.keys.limit(r.per.most)
		return s
	}
	s.all = newBreaker(now)
	s.keys = newKeyCache(r.per.most, newBreaker)
	return s
}

// breaker is a circuit breaker. Closed, it counts outcomes; open, it rejects calls; half open,
// it admits a few probes, whose outcomes decide.
type breaker struct {
	mu              sync.Mutex
	phase           phase
	since           time.Time // start of the phase
	round           uint64    // counts changes of phase; outcomes of earlier rounds are ignored
	slots           [breakerSlots]breakerSlot
	probesStarted   int // probes admitted in this phase
	probesSucceeded int // probes that succeeded in this phase
}

type phase uint8

const (
	closed phase = iota
	open
	halfOpen
)

const breakerSlots = 10

// breakerSlot counts the outcomes of a tenth of the window.
type breakerSlot struct {
	number     int64
	total, bad int
}

func newBreaker(now time.Time) *breaker { return &breaker{since: now} }

func (s *breakerStep) apply(x *Exchange) error {
	if s.per.by == perAll {
		return s.admit(x, s.all, s.all)
	}
	key, err := s.per.key(x)
	if err != nil {
		return &evaluationError{err}
	}
	e := s.keys.pin(key, x.Now)
	if err := s.admit(x, e.value, e); err != nil {
		s.keys.unpin(e)
		return err
	}
	return nil
}

func (s *breakerStep) admit(x *Exchange, b *breaker, what any) error {
	round, ok := b.admit(s.breakerRules, x.Now)
	if !ok {
		return s.refusal
	}
	x.acquisitions = append(x.acquisitions, acquisition{owner: s, state: what, round: round})
	return nil
}

func (s *breakerStep) release(_ *Exchange, h acquisition, o Outcome) {
	switch what := h.state.(type) {
	case *breaker:
		what.record(s.breakerRules, h.round, o)
	case *entry[breaker]:
		what.value.record(s.breakerRules, h.round, o)
		s.keys.unpin(what)
	}
}

// admit reports whether a call is admitted, and in which round.
func (b *breaker) admit(r *breakerRules, now time.Time) (round uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Probes that don't end within the same time are abandoned, and new probes are admitted.
	if full := b.phase == open || b.phase == halfOpen && b.probesStarted >= r.probes; full && now.Sub(b.since) >= r.open {
		b.setPhase(halfOpen, now)
	}
	switch {
	case b.phase == open, b.phase == halfOpen && b.probesStarted >= r.probes:
		return 0, false
	case b.phase == halfOpen:
		b.probesStarted++
	}
	return b.round, true
}

// record counts the outcome of an admitted call.
func (b *breaker) record(r *breakerRules, round uint64, o Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if round != b.round {
		return
	}
	bad := slices.Contains(r.codes, o.Code())
	switch {
	case o.refused, o.Moved, o.Code() == codes.Canceled && !bad: // it says nothing about the service
		b.discardProbe()
	case b.phase == halfOpen:
		b.recordProbe(r, bad, o.Now)
	case b.phase == closed:
		b.count(r, bad, o.Now)
	}
}

// discardProbe uncounts a probe that another policy rejected, that continues in another process, or
// that its caller has cancelled.
func (b *breaker) discardProbe() {
	if b.phase == halfOpen {
		b.probesStarted--
	}
}

func (b *breaker) recordProbe(r *breakerRules, bad bool, now time.Time) {
	if bad {
		b.setPhase(open, now)
		return
	}
	if b.probesSucceeded++; b.probesSucceeded >= r.probes {
		b.setPhase(closed, now)
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
		b.setPhase(open, now)
	}
}

// sum adds the slots of the window that ends with slot number.
func (b *breaker) sum(number int64) (total, bad int) {
	for _, s := range b.slots {
		if age := number - s.number; age >= 0 && age < breakerSlots {
			total, bad = total+s.total, bad+s.bad
		}
	}
	return total, bad
}

func (b *breaker) setPhase(p phase, now time.Time) {
	b.phase, b.since = p, now
	b.round++
	b.probesStarted, b.probesSucceeded = 0, 0
	b.slots = [breakerSlots]breakerSlot{}
}
