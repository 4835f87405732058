package policy

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// bucket is a token bucket in one word. The tokens that a rate has produced since its origin
// are a number that grows with time, the same for all keys; consumed is the position of the
// bucket on that curve, and the difference is its content. A changed rate continues the curve
// with another slope, so that a swap of policies touches no bucket. All numbers are modulo
// 2^64.
type bucket struct{ consumed atomic.Uint64 }

// unitsPerToken is the resolution of the refill curve.
const unitsPerToken = 1 << 12

// refillCurve is the number of token units produced as a function of time.
type refillCurve struct {
	since        int64 // nanoseconds from the origin
	produced     uint64
	unitsPerHour uint64 // units produced per hour
}

func (l *refillCurve) at(now int64) uint64 {
	passed := max(0, now-l.since)
	hi, lo := bits.Mul64(uint64(passed), l.unitsPerHour)
	units, _ := bits.Div64(hi%uint64(time.Hour), lo, uint64(time.Hour))
	return l.produced + units
}

// acquire consumes cost units of a bucket that holds burst units at most, and reports whether there
// were enough.
func (b *bucket) acquire(made, burst, cost uint64) bool {
	for {
		old := b.consumed.Load()
		used := old
		if int64(made-used) > int64(burst) {
			used = made - burst
		}
		if int64(made-used) < int64(cost) {
			return false
		}
		if b.consumed.CompareAndSwap(old, used+cost) {
			return true
		}
	}
}

type rateRules struct {
	per          per
	unitsPerHour uint64 // units an hour
	burst        uint64 // units
	pool         bool   // all nodes share the rate
	err          error
}

type rateStep struct {
	*rateRules
	curve refillCurve
	state *rateState
}

// rateState is the state of a rate policy, shared by the successive sets that contain it.
type rateState struct {
	origin origin
	all    atomic.Pointer[bucket] // the bucket that all calls share, if they do
	keys   *keyCache[bucket]
	by     perKind
	text   string
	// newest is the step of the set in force: new buckets start on its curve.
	newest atomic.Pointer[rateStep]
}

func (r *rateRules) bind(_ *policy, old step, now time.Time) step {
	s := &rateStep{rateRules: r, curve: refillCurve{unitsPerHour: r.unitsPerHour}}
	if o, ok := old.(*rateStep); ok && o.state.sameKeys(&r.per) {
		s.state = o.state
		s.curve.since = s.state.origin.since(now)
		s.curve.produced = o.curve.at(s.curve.since)
		s.state.keys.limit(r.per.most)
	} else {
		s.state = &rateState{by: r.per.by, text: r.per.text()}
		s.state.keys = newKeyCache(r.per.most, s.state.newBucket)
	}
	s.state.newest.Store(s)
	return s
}

func (p *per) text() string {
	if p.expr != nil {
		return p.expr.text
	}
	return ""
}

// sameKeys reports whether the state's keys are computed as the keys of p.
func (s *rateState) sameKeys(p *per) bool { return s.by == p.by && s.text == p.text() }

// newBucket returns a full bucket.
func (s *rateState) newBucket(now time.Time) *bucket {
	b := &bucket{}
	newest := s.newest.Load()
	b.consumed.Store(newest.curve.at(s.origin.since(now)) - newest.burst)
	return b
}

func (s *rateStep) apply(x *Exchange) error {
	b, err := s.bucket(x)
	if err != nil {
		return &evaluationError{err}
	}
	if !b.acquire(s.curve.at(s.state.origin.since(x.Now)), max(s.burst, s.cost(x)), s.cost(x)) {
		return s.err
	}
	return nil
}

// cost returns the cost of a call in units: one token, or, for a rate of the whole pool, one token
// per node, so that each node admits an equal share of the rate.
func (s *rateStep) cost(x *Exchange) uint64 {
	if !s.pool || x.Nodes < 2 {
		return unitsPerToken
	}
	return uint64(x.Nodes) * unitsPerToken
}

func (s *rateStep) bucket(x *Exchange) (*bucket, error) {
	if s.per.by != perAll {
		key, err := s.per.key(x)
		if err != nil {
			return nil, err
		}
		return s.state.keys.get(key, x.Now), nil
	}
	if b := s.state.all.Load(); b != nil {
		return b, nil
	}
	s.state.all.CompareAndSwap(nil, s.state.newBucket(x.Now))
	return s.state.all.Load(), nil
}
