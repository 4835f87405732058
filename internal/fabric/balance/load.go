package balance

import (
	"math"
	"sync"
	"time"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"
)

// load is the last load report of an endpoint.
type load struct {
	mu          sync.Mutex
	weight      float64 // zero: no weight yet
	utilization float64
	at, since   time.Duration // of the last usable report; of the first after an expiry
	usedAt      time.Duration // time of the last utilisation
	known       bool          // a utilisation was reported
}

// apply converts a report into a weight: calls per second over utilisation, with errors added
// to the utilisation.
func (l *load) apply(c *Reports, report *orca.OrcaLoadReport, at time.Duration) {
	utilization := utilizationOf(c, report)
	if !positive(utilization) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.utilization, l.usedAt, l.known = utilization, at, true
	calls := report.GetRpsFractional()
	if !positive(calls) {
		calls = float64(report.GetRps()) //nolint:staticcheck // what older back ends fill in
	}
	if !positive(calls) {
		return
	}
	if c.ErrorPenalty > 0 && positive(report.GetEps()) {
		utilization += report.GetEps() / calls * c.ErrorPenalty
	}
	weight := calls / utilization
	if !positive(weight) {
		return
	}
	if l.weight == 0 {
		l.since, l.weight = at, weight
	}
	// Calls repeat a report until there is a new one: the weight of a report depends on the time
	// since the last, not on how often it is repeated.
	old := 0.0
	if c.Smoothing > 0 {
		old = math.Exp(-float64(max(at-l.at, 0)) / float64(c.Smoothing))
	}
	l.weight, l.at = old*l.weight+(1-old)*weight, max(at, l.at)
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 1) }

func utilizationOf(c *Reports, report *orca.OrcaLoadReport) float64 {
	if c.Metric != "" {
		if u, ok := report.GetNamedMetrics()[c.Metric]; ok {
			return u
		}
		if u, ok := report.GetUtilization()[c.Metric]; ok {
			return u
		}
	}
	if u := report.GetApplicationUtilization(); u > 0 {
		return u
	}
	return report.GetCpuUtilization()
}

// weightAt returns zero when the endpoint's report is too young or too old to count.
func (l *load) weightAt(c *Reports, at time.Duration) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.weight == 0 {
		return 0
	}
	if at-l.at >= c.Expiry {
		// An endpoint that reports again begins anew, blackout included.
		l.weight = 0
		return 0
	}
	if at-l.since < c.Blackout {
		return 0
	}
	return l.weight
}

func (l *load) utilizationAt(c *Reports, at time.Duration) (float64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known || at-l.usedAt >= c.Expiry {
		return 0, false
	}
	return l.utilization, true
}

// weigh computes the weights of all members and publishes them for least requests. soon is the time
// for which the weights are valid.
func (p *picker) weigh(at time.Duration) (weights []float64, soon time.Duration) {
	soon = math.MaxInt64 - at
	weights = make([]float64, len(p.members))
	for i, m := range p.members {
		weights[i] = float64(max(1, m.Weight))
	}
	if p.config.Reports.Enabled {
		p.applyReports(weights, at)
	}
	if p.config.Reports.Enabled || p.config.Locality.enabled() {
		soon = p.config.Reports.Period
	}
	for i, m := range p.members {
		ramp, rising := p.config.SlowStart.ramp(at - max(m.state.since, m.state.health.until()))
		weights[i] *= ramp
		if rising {
			soon = min(soon, max(p.config.SlowStart.Window/50, 10*time.Millisecond))
		}
		m.state.share.Store(math.Float64bits(weights[i]))
	}
	return weights, soon
}

// spread bounds how far a reported weight may be from the mean.
const spread = 10

// applyReports replaces the operator's weights by reported ones. A member without a report gets the
// mean of the others; with fewer than two reports all members keep the operator's weights.
func (p *picker) applyReports(weights []float64, at time.Duration) {
	reported := make([]float64, len(weights))
	sum, count := 0.0, 0.0
	for i, m := range p.members {
		if reported[i] = m.state.load.weightAt(&p.config.Reports, at); reported[i] > 0 {
			sum += reported[i]
			count++
		}
	}
	if count < 2 {
		return
	}
	mean := sum / count
	for i, w := range reported {
		if w == 0 {
			w = mean
		}
		// Weights are in units of the mean, so that limits per unit of weight keep their meaning.
		weights[i] = min(max(w/mean, 1.0/spread), spread)
	}
}

// ramp returns the fraction of its weight that an endpoint of an age receives, and whether the
// fraction still rises.
func (s *SlowStart) ramp(age time.Duration) (share float64, rising bool) {
	if s.Window <= 0 || age >= s.Window {
		return 1, false
	}
	age = max(age, 0)
	share = math.Pow(float64(age)/float64(s.Window), 1/s.Aggression)
	return max(share, s.Least, 1e-3), true
}
