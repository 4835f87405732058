package policy

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A bucket is a token bucket in one word. The tokens that a rate has made since ever
// are a number that grows with time, the same for all keys; used is where the
// bucket's takings have got to on that line, and the difference is what is in the
// bucket. Another rate continues the line with another slope, so that no bucket has
// to be touched when a policy is swapped. All numbers are modulo 2^64.
type bucket struct{ used atomic.Uint64 }

// unitsPerToken is the fineness of the line.
const unitsPerToken = 1 << 12

// A line is the tokens made until a time, in units.
type line struct {
	since int64 // nanoseconds from the origin
	made  uint64
	hour  uint64 // units made in an hour
}

func (l *line) at(now int64) uint64 {
	passed := max(0, now-l.since)
	hi, lo := bits.Mul64(uint64(passed), l.hour)
	units, _ := bits.Div64(hi%uint64(time.Hour), lo, uint64(time.Hour))
	return l.made + units
}

// take takes a token from the bucket, which holds burst units at most.
func (b *bucket) take(made, burst uint64) bool {
	for {
		old := b.used.Load()
		used := old
		if int64(made-used) > int64(burst) {
			used = made - burst
		}
		if int64(made-used) < unitsPerToken {
			return false
		}
		if b.used.CompareAndSwap(old, used+unitsPerToken) {
			return true
		}
	}
}

type rateRules struct {
	per   per
	hour  uint64 // units an hour
	burst uint64 // units
	err   error
}

type rateStep struct {
	*rateRules
	line  line
	state *rateState
}

// rateState is what outlives a set.
type rateState struct {
	origin origin
	all    atomic.Pointer[bucket] // where calls share one
	keys   *keyed[bucket]
	by     perKind
	text   string
	// Newest is the step of the set in force: fresh buckets are on its line.
	newest atomic.Pointer[rateStep]
}

func (r *rateRules) bind(_ *policy, old step, now time.Time) step {
	s := &rateStep{rateRules: r, line: line{hour: r.hour}}
	if o, ok := old.(*rateStep); ok && o.state.serves(&r.per) {
		s.state = o.state
		s.line.since = s.state.origin.since(now)
		s.line.made = o.line.at(s.line.since)
		s.state.keys.limit(r.per.most)
	} else {
		s.state = &rateState{by: r.per.by, text: r.per.text()}
		s.state.keys = newKeyed(r.per.most, s.state.fresh)
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

// serves says whether the keys of this state are those of p.
func (s *rateState) serves(p *per) bool { return s.by == p.by && s.text == p.text() }

// fresh is a full bucket.
func (s *rateState) fresh(now time.Time) *bucket {
	b := &bucket{}
	newest := s.newest.Load()
	b.used.Store(newest.line.at(s.origin.since(now)) - newest.burst)
	return b
}

func (s *rateStep) begin(x *Exchange) error {
	b, err := s.bucket(x)
	if err != nil {
		return &evaluationError{err}
	}
	if !b.take(s.line.at(s.state.origin.since(x.Now)), s.burst) {
		return s.err
	}
	return nil
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
	s.state.all.CompareAndSwap(nil, s.state.fresh(x.Now))
	return s.state.all.Load(), nil
}
