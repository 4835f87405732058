package balance

import "time"

// The tiers: the same node, the same zone, anywhere else.
const tiers = 3

func (l *Locality) tier(e *Endpoint) int {
	switch {
	case !l.enabled() || l.Node != "" && l.Node == e.Node:
		return 0
	case l.Zone != "" && l.Zone == e.Zone:
		return 1
	}
	return 2
}

// spillsOver reports whether this call goes to a farther tier than t: by a random draw, or because
// m is busy.
func (p *picker) spillsOver(t *tier, m *member) bool {
	if t.share < 1 && float64(p.config.Random()>>11)/(1<<53) >= t.share {
		return true
	}
	return p.busy(m)
}

func (p *picker) busy(m *member) bool {
	return m.state.pressure() > float64(p.config.Locality.Outstanding)
}

// spill computes the fraction of the calls that each tier keeps. A tier above its target
// utilisation keeps less in proportion, until it reports the target; it never spills to tiers
// with a higher utilisation.
func (p *picker) spill(s *snapshot, at time.Duration) {
	due := at-p.computed >= p.config.Reports.Period
	if due {
		p.computed = at
	}
	further := 0.0
	for i := len(s.tiers) - 1; i >= 0; i-- {
		t := &s.tiers[i]
		utilization := p.utilization(t, at)
		keep := &p.shares[t.members[0].tier]
		switch {
		case i == len(s.tiers)-1 || utilization == 0:
			*keep = 1
		case due:
			ratio := max(p.config.Locality.Utilization, further) / utilization
			// Reports lag behind the changes of the fraction, so steps are small.
			*keep = min(1, max(*keep*min(max(ratio, 0.5), 1.25), 0.02))
		}
		t.share = *keep
		further = max(further, utilization)
	}
}

// utilization returns the mean utilisation that the members report; zero without reports.
func (p *picker) utilization(t *tier, at time.Duration) float64 {
	sum, count := 0.0, 0.0
	for _, m := range t.members {
		if u, ok := m.state.load.utilizationAt(&p.config.Reports, at); ok {
			sum += u
			count++
		}
	}
	if count == 0 {
		return 0
	}
	return sum / count
}
