package policy

import (
	"sync/atomic"
	"time"
)

// ConcurrencyRules limit the calls that are under way at a time.
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

// ConcurrencyState is what outlives a set. A key whose calls are all over may be
// forgotten; one with calls under way is pinned.
type concurrencyState struct {
	all  atomic.Int64
	keys *keyed[atomic.Int64]
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
	s.state.keys = newKeyed(r.per.most, func(time.Time) *atomic.Int64 { return &atomic.Int64{} })
	return s
}

func (s *concurrencyStep) begin(x *Exchange) error {
	if s.per.by == perAll {
		return s.enter(x, &s.state.all, nil)
	}
	key, err := s.per.key(x)
	if err != nil {
		return &broken{err}
	}
	e := s.state.keys.pin(key, x.Now)
	if err := s.enter(x, e.value, e); err != nil {
		s.state.keys.unpin(e)
		return err
	}
	return nil
}

func (s *concurrencyStep) enter(x *Exchange, count *atomic.Int64, e *entry[atomic.Int64]) error {
	if count.Add(1) > s.limit {
		count.Add(-1)
		return s.err
	}
	x.held = append(x.held, held{by: s, what: e})
	return nil
}

func (s *concurrencyStep) end(_ *Exchange, h held, _ Outcome) {
	e, ok := h.what.(*entry[atomic.Int64])
	if !ok || e == nil {
		s.state.all.Add(-1)
		return
	}
	e.value.Add(-1)
	s.state.keys.unpin(e)
}

// InFlight is the number of calls under way.
func (s *concurrencyState) inFlight() int64 {
	n := s.all.Load()
	s.keys.each(func(v *atomic.Int64) { n += v.Load() })
	return n
}
