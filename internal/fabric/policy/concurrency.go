package policy

import (
	"time"
)

// concurrencyRules limit the calls in flight.
type concurrencyRules struct {
	per   per
	limit int64
	err   error
}

type concurrencyStep struct {
	*concurrencyRules
	policy *policy
	state  *concurrencyState
}

// concurrencyState is the state of a concurrency policy, shared by the successive sets that
// contain it. A key with calls in flight is pinned.
type concurrencyState struct {
	all  inFlightCalls
	keys *keyCache[inFlightCalls]
	by   perKind
	text string
}

func (r *concurrencyRules) bind(p *policy, old step, _ time.Time) step {
	s := &concurrencyStep{concurrencyRules: r, policy: p}
	if o, ok := old.(*concurrencyStep); ok && o.state.by == r.per.by && o.state.text == r.per.text() {
		s.state = o.state
		s.state.keys.limit(r.per.most)
		return s
	}
	s.state = &concurrencyState{by: r.per.by, text: r.per.text()}
	s.state.keys = newKeyCache(r.per.most, func(time.Time) *inFlightCalls { return &inFlightCalls{} })
	return s
}

func (s *concurrencyStep) apply(x *Exchange) error {
	if s.per.by == perAll {
		return s.admit(x, &s.state.all, nil)
	}
	key, err := s.per.key(x)
	if err != nil {
		return &evaluationError{err}
	}
	e := s.state.keys.pin(key, x.Now)
	if err := s.admit(x, e.value, e); err != nil {
		s.state.keys.unpin(e)
		return err
	}
	return nil
}

func (s *concurrencyStep) admit(x *Exchange, count *inFlightCalls, e *entry[inFlightCalls]) error {
	if !count.admit(s.limit) {
		return s.err
	}
	x.acquisitions = append(x.acquisitions, acquisition{owner: s, state: e})
	return nil
}

func (s *concurrencyStep) release(_ *Exchange, h acquisition, _ Outcome) {
	e, ok := h.state.(*entry[inFlightCalls])
	if !ok || e == nil {
		s.state.all.here.Add(-1)
		return
	}
	e.value.here.Add(-1)
	s.state.keys.unpin(e)
}

// inFlight returns the number of calls in flight.
func (s *concurrencyState) inFlight() int64 {
	n := s.all.here.Load()
	s.keys.each(func(v *inFlightCalls) { n += v.here.Load() })
	return n
}
