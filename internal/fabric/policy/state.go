package policy

import (
	"sync/atomic"
	"time"
)

// The state that policies keep beyond a call moves to the process that takes over the calls:
// buckets keep their content, breakers their phase, budgets their spent part. A step whose kind or
// key differs there starts with fresh state, as at a swap.

// SetState is the exported state of a set's policies, by their names.
type SetState map[string]State

// A State is the exported state of one policy.
type State struct {
	// Kind and Per (the kind and expression of its key) identify the step that the state belongs
	// to.
	Kind, Per string
	// Tokens are the units in buckets that are not full, by key. All is the content of the
	// shared bucket, if there is one; it is a slice because gob drops a pointer to 0.
	Tokens map[string]int64
	All    []int64
	// Breakers are the circuit breakers by key, and Breaker is the shared one.
	Breakers map[string]BreakerState
	Breaker  *BreakerState
	// Spent is the spent part of the budget for extra attempts.
	Spent int64
}

// A BreakerState is an exported circuit breaker. Its times are read from the machine's clock.
type BreakerState struct {
	Open, HalfOpen bool
	Since          time.Time
	// Well is the number of successful probes.
	Well  int
	Slots []BreakerStateSlot
}

// A BreakerStateSlot is a tenth of a breaker's window.
type BreakerStateSlot struct {
	Number     int64
	Total, Bad int
}

// maxExportedKeys bounds the exported keys of one policy.
const maxExportedKeys = 1 << 16

// stateful is a step whose state moves to the process that takes over the calls.
type stateful interface {
	exportState(now time.Time) State
	restore(c State, now time.Time)
}

// ExportState returns the state of the policies in force.
func (t *Table) ExportState(now time.Time) SetState {
	all := SetState{}
	set := t.Set()
	if set == nil {
		return all
	}
	for _, p := range set.policies {
		if s, ok := p.step.(stateful); ok {
			c := s.exportState(now)
			c.Kind = p.kind
			all[p.name] = c
		}
	}
	return all
}

// ImportState replaces the state of the policies in force by the exported state of another
// process. It is called before the first call.
func (t *Table) ImportState(all SetState, now time.Time) {
	set := t.Set()
	if set == nil {
		return
	}
	for _, p := range set.policies {
		c, known := all[p.name]
		if s, ok := p.step.(stateful); ok && known && c.Kind == p.kind {
			s.restore(c, now)
		}
	}
}

// keyKind identifies how keys are computed.
func (p *per) keyKind() string { return string(rune('0'+p.by)) + p.text() }

// exportState omits full buckets, since an unknown key has a full bucket.
func (s *rateStep) exportState(now time.Time) State {
	c := State{Per: s.per.keyKind(), Tokens: map[string]int64{}}
	made := s.curve.at(s.state.origin.since(now))
	if b := s.state.all.Load(); b != nil && b.available(made, s.burst) < int64(s.burst) {
		c.All = []int64{b.available(made, s.burst)}
	}
	s.state.keys.eachKey(func(key string, b *bucket) {
		if left := b.available(made, s.burst); left < int64(s.burst) && len(c.Tokens) < maxExportedKeys {
			c.Tokens[key] = left
		}
	})
	return c
}

// available returns the units in the bucket.
func (b *bucket) available(made, burst uint64) int64 {
	return min(int64(made-b.consumed.Load()), int64(burst))
}

func (s *rateStep) restore(c State, now time.Time) {
	if c.Per != s.per.keyKind() {
		return
	}
	made := s.curve.at(s.state.origin.since(now))
	if len(c.All) == 1 {
		s.state.all.Store(s.bucketOf(made, c.All[0]))
	}
	for key, left := range c.Tokens {
		s.state.keys.get(key, now).consumed.Store(s.bucketOf(made, left).consumed.Load())
	}
}

func (s *rateStep) bucketOf(made uint64, left int64) *bucket {
	b := &bucket{}
	b.consumed.Store(made - uint64(min(left, int64(s.burst))))
	return b
}

func (s *breakerStep) exportState(time.Time) State {
	c := State{Per: s.per.keyKind(), Breakers: map[string]BreakerState{}}
	if s.per.by == perAll {
		b := s.all.exportState()
		c.Breaker = &b
	}
	s.keys.eachKey(func(key string, b *breaker) {
		if len(c.Breakers) < maxExportedKeys {
			c.Breakers[key] = b.exportState()
		}
	})
	return c
}

// exportState omits probes in flight: their outcomes arrive in this process.
func (b *breaker) exportState() BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := BreakerState{Open: b.phase == open, HalfOpen: b.phase == halfOpen, Since: b.since, Well: b.probesSucceeded}
	for _, s := range b.slots {
		if s.total > 0 {
			c.Slots = append(c.Slots, BreakerStateSlot{s.number, s.total, s.bad})
		}
	}
	return c
}

func (s *breakerStep) restore(c State, now time.Time) {
	if c.Per != s.per.keyKind() {
		return
	}
	if c.Breaker != nil {
		s.all.restore(*c.Breaker)
	}
	for key, b := range c.Breakers {
		s.keys.get(key, now).restore(b)
	}
}

func (b *breaker) restore(c BreakerState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.phase, b.since, b.probesSucceeded = closed, c.Since, c.Well
	switch {
	case c.Open:
		b.phase = open
	case c.HalfOpen:
		b.phase = halfOpen
	}
	b.round++
	for _, s := range c.Slots {
		b.slots[uint64(s.Number)%breakerSlots] = breakerSlot{s.Number, s.Total, s.Bad}
	}
}

func (s *retryStep) exportState(time.Time) State { return s.budget.exportState() }

func (s *retryStep) restore(c State, _ time.Time) { s.budget.spent.Store(c.Spent) }

func (s *hedgeStep) exportState(time.Time) State { return s.budget.exportState() }

func (s *hedgeStep) restore(c State, _ time.Time) { s.budget.spent.Store(c.Spent) }

func (b *budget) exportState() State { return State{Spent: b.spent.Load()} }

// InFlight is the number of calls in flight under one key of a concurrency policy.
type InFlight struct {
	Policy, Per, Key string
	// All means that calls of all keys share one count.
	All   bool
	Calls int64
}

// InFlightCalls returns the calls in flight that the concurrency policies in force count in
// this process.
func (t *Table) InFlightCalls() []InFlight {
	var list []InFlight
	set := t.Set()
	if set == nil {
		return nil
	}
	for _, p := range set.policies {
		s, ok := p.step.(*concurrencyStep)
		if !ok {
			continue
		}
		per := s.per.keyKind()
		if n := s.state.all.here.Load(); n > 0 {
			list = append(list, InFlight{Policy: p.name, Per: per, All: true, Calls: n})
		}
		s.state.keys.eachKey(func(key string, c *inFlightCalls) {
			if n := c.here.Load(); n > 0 && len(list) < maxExportedKeys {
				list = append(list, InFlight{Policy: p.name, Per: per, Key: key, Calls: n})
			}
		})
	}
	return list
}

// SetRemoteInFlight counts the calls in flight in other processes towards the limits. It replaces the
// counts that it set before.
func (t *Table) SetRemoteInFlight(list []InFlight, now time.Time) {
	set := t.Set()
	if set == nil {
		return
	}
	for _, p := range set.policies {
		if s, ok := p.step.(*concurrencyStep); ok {
			s.setRemote(p.name, list, now)
		}
	}
}

func (s *concurrencyStep) setRemote(name string, list []InFlight, now time.Time) {
	per := s.per.keyKind()
	s.state.all.elsewhere.Store(0)
	s.state.keys.each(func(c *inFlightCalls) { c.elsewhere.Store(0) })
	for _, h := range list {
		switch {
		case h.Policy != name || h.Per != per:
		case h.All:
			s.state.all.elsewhere.Add(h.Calls)
		default:
			s.state.keys.get(h.Key, now).elsewhere.Add(h.Calls)
		}
	}
}

// inFlightCalls counts the calls in flight under one key, in this process and elsewhere.
type inFlightCalls struct{ here, elsewhere atomic.Int64 }

// admit counts a call unless that would exceed the limit.
func (c *inFlightCalls) admit(limit int64) bool {
	if c.here.Add(1)+c.elsewhere.Load() > limit {
		c.here.Add(-1)
		return false
	}
	return true
}
