package balance

import (
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// health is the state of outlier ejection for an endpoint.
type health struct {
	ejectedUntil atomic.Int64 // a duration since the picker's epoch
	ejections    atomic.Uint64
	consecutive  atomic.Int64
	good, bad    atomic.Uint64 // outcomes in this interval
	times        int           // recent ejections; under picker.mu
}

func (h *health) until() time.Duration { return time.Duration(h.ejectedUntil.Load()) }

// classify reports whether an outcome is a failure of the endpoint, and whether it counts at
// all.
func classify(err error) (bad, counts bool) {
	if err == nil {
		return false, true
	}
	switch status.Code(err) {
	case codes.Canceled:
		return false, false
	case codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true, true
	default:
		return false, true
	}
}

// recordOutcome counts an outcome and ejects the endpoint after too many consecutive failures.
func (p *picker) recordOutcome(m *member, err error, at time.Duration) {
	bad, counts := classify(err)
	h := &m.state.health
	switch {
	case !counts:
	case !bad:
		h.good.Add(1)
		// A store on every success would move the cache line between processors.
		if h.consecutive.Load() != 0 {
			h.consecutive.Store(0)
		}
	default:
		h.bad.Add(1)
		limit := int64(p.config.Ejection.Consecutive)
		if limit > 0 && h.consecutive.Add(1) >= limit {
			p.ejectNow(m.ID, at)
		}
	}
}

func (p *picker) ejectNow(id string, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The endpoint may have been removed, or ejected by another call's failure.
	if s := p.states[id]; s != nil && p.eject(s, at) {
		p.rebuild(at)
	}
}

// eject ejects an endpoint unless the limit of ejected endpoints is reached. The caller holds
// mu.
func (p *picker) eject(s *state, at time.Duration) bool {
	c := &p.config.Ejection
	s.health.consecutive.Store(0)
	if s.health.until() > at || (p.ejected(at)+1)*100 > c.MaxPercent*len(p.members) {
		return false
	}
	s.health.times++
	s.health.ejections.Add(1)
	s.health.ejectedUntil.Store(int64(at + min(c.Base*time.Duration(s.health.times), max(c.Base, c.Longest))))
	return true
}

// liftEjections ends ejections early when the number of endpoints shrinks, in the order in which
// they would end. The caller holds mu.
func (p *picker) liftEjections(at time.Duration) {
	for p.ejected(at)*100 > p.config.Ejection.MaxPercent*len(p.members) {
		var first *health
		for _, m := range p.members {
			h := &m.state.health
			if h.until() > at && (first == nil || h.until() < first.until()) {
				first = h
			}
		}
		first.ejectedUntil.Store(int64(at))
	}
}

func (p *picker) ejected(at time.Duration) int {
	n := 0
	for _, m := range p.members {
		if m.state.health.until() > at {
			n++
		}
	}
	return n
}

// sweep compares success rates at the end of an interval, and reduces the ejection times of
// healthy endpoints. It returns the time until the next sweep.
func (p *picker) sweep(at time.Duration) time.Duration {
	c := &p.config.Ejection
	if !c.enabled() {
		return math.MaxInt64 - at
	}
	if at-p.swept < c.Interval {
		return c.Interval - (at - p.swept)
	}
	p.swept = at
	if c.SuccessRate > 0 {
		p.compareRates(at)
	}
	for _, m := range p.members {
		h := &m.state.health
		h.good.Store(0)
		h.bad.Store(0)
		if h.until() <= at && h.times > 0 {
			h.times--
		}
	}
	return c.Interval
}

// compareRates ejects the endpoints whose success rate is far below the mean.
func (p *picker) compareRates(at time.Duration) {
	c := &p.config.Ejection
	var hosts []*member
	var rates []float64
	for _, m := range p.members {
		good, bad := float64(m.state.health.good.Load()), float64(m.state.health.bad.Load())
		if good+bad >= float64(c.Requests) && m.state.health.until() <= at {
			hosts = append(hosts, m)
			rates = append(rates, good/(good+bad))
		}
	}
	if len(hosts) < max(c.Hosts, 2) {
		return
	}
	mean, deviation := moments(rates)
	for i, m := range hosts {
		if rates[i] < mean-deviation*float64(c.SuccessRate)/1000 {
			p.eject(m.state, at)
		}
	}
}

func moments(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / float64(len(values))
	}
	return mean, math.Sqrt(deviation)
}
