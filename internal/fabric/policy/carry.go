package policy

import (
	"sync/atomic"
	"time"
)

// What policies hold beyond a call goes along when another process takes the calls
// over: a bucket stays as empty as it was, a breaker as open, a budget as spent. A
// step whose kind or key is another one there begins anew, as at a swap.

// Carried is what the policies of a set hold, by their names.
type Carried map[string]CarriedPolicy

// A CarriedPolicy is what one policy holds.
type CarriedPolicy struct {
	// Kind and Per, a key's kind and expression, say what the rest belongs to.
	Kind, Per string
	// Tokens are those of buckets that are not full, in units, by key; All has the one
	// that calls share, if there is one. It is a list because gob drops a pointer to 0.
	Tokens map[string]int64
	All    []int64
	// Breakers are by key too, and Breaker the one that calls share.
	Breakers map[string]CarriedBreaker
	Breaker  *CarriedBreaker
	// Spent is what extra attempts have taken from the budget.
	Spent int64
}

// A CarriedBreaker is a breaker. Its times are the machine's.
type CarriedBreaker struct {
	Open, HalfOpen bool
	Since          time.Time
	// Well is how many probes have ended well.
	Well  int
	Slots []CarriedSlot
}

// A CarriedSlot is a tenth of a breaker's window.
type CarriedSlot struct {
	Number     int64
	Total, Bad int
}

// mostCarried bounds the keys of one policy.
const mostCarried = 1 << 16

// A carrier is a step that holds something.
type carrier interface {
	carry(now time.Time) CarriedPolicy
	take(c CarriedPolicy, now time.Time)
}

// Carry is what the policies in force hold.
func (t *Table) Carry(now time.Time) Carried {
	all := Carried{}
	set := t.Set()
	if set == nil {
		return all
	}
	for _, p := range set.policies {
		if s, ok := p.step.(carrier); ok {
			c := s.carry(now)
			c.Kind = p.kind
			all[p.name] = c
		}
	}
	return all
}

// Take makes the policies in force hold what those of another process held. It is
// called before the first call.
func (t *Table) Take(all Carried, now time.Time) {
	set := t.Set()
	if set == nil {
		return
	}
	for _, p := range set.policies {
		c, known := all[p.name]
		if s, ok := p.step.(carrier); ok && known && c.Kind == p.kind {
			s.take(c, now)
		}
	}
}

// about says what keys are made of.
func (p *per) about() string { return string(rune('0'+p.by)) + p.text() }

// carry leaves full buckets out: one that nobody used is full.
func (s *rateStep) carry(now time.Time) CarriedPolicy {
	c := CarriedPolicy{Per: s.per.about(), Tokens: map[string]int64{}}
	made := s.line.at(s.state.origin.since(now))
	if b := s.state.all.Load(); b != nil && b.left(made, s.burst) < int64(s.burst) {
		c.All = []int64{b.left(made, s.burst)}
	}
	s.state.keys.eachKey(func(key string, b *bucket) {
		if left := b.left(made, s.burst); left < int64(s.burst) && len(c.Tokens) < mostCarried {
			c.Tokens[key] = left
		}
	})
	return c
}

// left is what is in the bucket, in units.
func (b *bucket) left(made, burst uint64) int64 {
	return min(int64(made-b.used.Load()), int64(burst))
}

func (s *rateStep) take(c CarriedPolicy, now time.Time) {
	if c.Per != s.per.about() {
		return
	}
	made := s.line.at(s.state.origin.since(now))
	if len(c.All) == 1 {
		s.state.all.Store(s.bucketOf(made, c.All[0]))
	}
	for key, left := range c.Tokens {
		s.state.keys.get(key, now).used.Store(s.bucketOf(made, left).used.Load())
	}
}

func (s *rateStep) bucketOf(made uint64, left int64) *bucket {
	b := &bucket{}
	b.used.Store(made - uint64(min(left, int64(s.burst))))
	return b
}

func (s *breakerStep) carry(time.Time) CarriedPolicy {
	c := CarriedPolicy{Per: s.per.about(), Breakers: map[string]CarriedBreaker{}}
	if s.per.by == perAll {
		b := s.all.carry()
		c.Breaker = &b
	}
	s.keys.eachKey(func(key string, b *breaker) {
		if len(c.Breakers) < mostCarried {
			c.Breakers[key] = b.carry()
		}
	})
	return c
}

// carry leaves probes that are under way out: they end here.
func (b *breaker) carry() CarriedBreaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := CarriedBreaker{Open: b.phase == open, HalfOpen: b.phase == halfOpen, Since: b.since, Well: b.well}
	for _, s := range b.slots {
		if s.total > 0 {
			c.Slots = append(c.Slots, CarriedSlot{s.number, s.total, s.bad})
		}
	}
	return c
}

func (s *breakerStep) take(c CarriedPolicy, now time.Time) {
	if c.Per != s.per.about() {
		return
	}
	if c.Breaker != nil {
		s.all.take(*c.Breaker)
	}
	for key, b := range c.Breakers {
		s.keys.get(key, now).take(b)
	}
}

func (b *breaker) take(c CarriedBreaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.phase, b.since, b.well = closed, c.Since, c.Well
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

func (s *retryStep) carry(time.Time) CarriedPolicy { return s.budget.carry() }

func (s *retryStep) take(c CarriedPolicy, _ time.Time) { s.budget.spent.Store(c.Spent) }

func (s *hedgeStep) carry(time.Time) CarriedPolicy { return s.budget.carry() }

func (s *hedgeStep) take(c CarriedPolicy, _ time.Time) { s.budget.spent.Store(c.Spent) }

func (b *budget) carry() CarriedPolicy { return CarriedPolicy{Spent: b.spent.Load()} }

// Held is how many calls a policy counts that are under way, by its key.
type Held struct {
	Policy, Per, Key string
	// All says that calls of all keys count together.
	All   bool
	Calls int64
}

// Held is what the policies in force that limit calls under way have counted here.
func (t *Table) Held() []Held {
	var list []Held
	set := t.Set()
	if set == nil {
		return nil
	}
	for _, p := range set.policies {
		s, ok := p.step.(*concurrencyStep)
		if !ok {
			continue
		}
		per := s.per.about()
		if n := s.state.all.here.Load(); n > 0 {
			list = append(list, Held{Policy: p.name, Per: per, All: true, Calls: n})
		}
		s.state.keys.eachKey(func(key string, c *inFlightCalls) {
			if n := c.here.Load(); n > 0 && len(list) < mostCarried {
				list = append(list, Held{Policy: p.name, Per: per, Key: key, Calls: n})
			}
		})
	}
	return list
}

// HeldElsewhere counts the calls that other processes have under way into the limits,
// in place of those of the call before.
func (t *Table) HeldElsewhere(list []Held, now time.Time) {
	set := t.Set()
	if set == nil {
		return
	}
	for _, p := range set.policies {
		if s, ok := p.step.(*concurrencyStep); ok {
			s.elsewhere(p.name, list, now)
		}
	}
}

func (s *concurrencyStep) elsewhere(name string, list []Held, now time.Time) {
	per := s.per.about()
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

// inFlightCalls counts the calls under way that count together.
type inFlightCalls struct{ here, elsewhere atomic.Int64 }

// enter counts a call, if there may be one more.
func (c *inFlightCalls) enter(limit int64) bool {
	if c.here.Add(1)+c.elsewhere.Load() > limit {
		c.here.Add(-1)
		return false
	}
	return true
}
