package policy

import (
	"sync/atomic"
	"time"
)

// faultRules inject a delay, a status, or both into a fraction of the calls.
type faultRules struct {
	fraction float64
	delay    time.Duration
	err      error // nil: no status
}

type faultStep struct {
	*faultRules
	policy *policy
}

func (r *faultRules) bind(p *policy, _ step, _ time.Time) step { return &faultStep{r, p} }

func (s *faultStep) apply(x *Exchange) error {
	if !x.chance(s.fraction) {
		return nil
	}
	if s.delay > 0 {
		x.Plan.Delay += s.delay
		if s.err == nil {
			s.policy.recordAction(x)
		}
	}
	return s.err
}

type linkRules struct {
	latency, jitter time.Duration
	bandwidth       float64 // bytes a second; 0: no bound
}

type linkStep struct {
	link   Link
	policy *policy
}

// A Link emulates a network link: it delays messages. All calls of the policy share its
// bandwidth.
type Link struct {
	rules *linkRules
	wire  *[2]wire
}

// A wire is one direction of a link.
type wire struct {
	origin origin
	free   atomic.Int64 // when the last scheduled byte leaves, in nanoseconds from the origin
}

// Direction is the direction of a message over a link.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

func (r *linkRules) bind(p *policy, old step, _ time.Time) step {
	s := &linkStep{Link{r, &[2]wire{}}, p}
	if o, ok := old.(*linkStep); ok {
		s.link.wire = o.link.wire
	}
	return s
}

func (s *linkStep) apply(x *Exchange) error {
	x.Plan.Links = append(x.Plan.Links, &s.link)
	s.policy.recordAction(x)
	return nil
}

// Delay returns how long the link holds up a message of this many bytes that it accepts at now:
// until the earlier messages have left, the message has left, and has crossed the link. Messages of
// one stream stay in order if the delay of each has passed before Delay is called for the next.
func (l *Link) Delay(d Direction, bytes int, now time.Time, random func() uint64) time.Duration {
	delay := l.rules.latency
	if l.rules.jitter > 0 && random != nil {
		delay += time.Duration(float64(l.rules.jitter) * float64(random()>>11) / (1 << 53))
	}
	if l.rules.bandwidth == 0 {
		return delay
	}
	takes := int64(float64(bytes) / l.rules.bandwidth * float64(time.Second))
	return delay + l.wire[d].send(now, takes)
}

func (w *wire) send(at time.Time, takes int64) time.Duration {
	now := w.origin.since(at)
	for {
		free := w.free.Load()
		next := max(free, now) + takes
		if w.free.CompareAndSwap(free, next) {
			return time.Duration(next - now)
		}
	}
}
