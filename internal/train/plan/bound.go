package plan

import "math"

// bounds holds lower bounds of the time and the price that the layers before a cut add to a suffix,
// for one division of the batch.
type bounds struct {
	t *tables
	// leastForward and leastBackward are the least times of all layers before a cut, longestForward
	// and longestBackward the times of the longest layer: each layer on the device that is fastest
	// for it.
	leastForward, leastBackward, longestForward, longestBackward []float64
	// Both tables limit the time of each stage before a cut: whole is for the time of all of its
	// micro-batches and the reduction, last for that of its last backward pass and the reduction.
	whole, last prefixes
}

// levels is the number of limits, and rates the number of exchange rates of time and price, for
// which prefixes are computed.
const (
	levels = 32
	rates  = 12
)

// prefixes holds, for limits from 0 to most, the least price and time that any division into stages
// of the layers before a cut adds, if no stage takes more than the limit. What holds for a limit is
// computed when it is first asked for: most divisions of a batch are excluded by a few limits.
//
// The least price of stages with a bound on their total time is a shortest path with a constraint.
// Its Lagrangian relaxation bounds it: for any rate, the least price + rate*time of a division,
// less rate*the time that is allowed (Handler and Zang, Networks 10, 1980).
type prefixes struct {
	t *tables
	// limited is the time of each stage that the limits are for, +Inf if the device's memory can't
	// hold it, and least the least time of one micro-batch in it; both by index.
	limited, least []float64
	most           float64
	rate           [rates]float64
	rates          int // 0 if prices do not matter
	// mixed is the least price + rate*time, time the least time, by limit and cut; +Inf if there is
	// no such division.
	mixed [levels + 1][][rates]float64
	time  [levels + 1][]float64
}

func newBounds(t *tables, priced bool) *bounds {
	n := len(t.job.Layers)
	b := &bounds{
		t: t, leastForward: make([]float64, n+1), leastBackward: make([]float64, n+1),
		longestForward: make([]float64, n+1), longestBackward: make([]float64, n+1),
	}
	for i := range n {
		forward, backward := math.Inf(1), math.Inf(1)
		for device := range t.job.Devices {
			forward, backward = min(forward, t.forward(i, i+1, device)), min(backward, t.backward(i, i+1, device))
		}
		b.leastForward[i+1], b.leastBackward[i+1] = b.leastForward[i]+forward, b.leastBackward[i]+backward
		b.longestForward[i+1] = max(b.longestForward[i], forward)
		b.longestBackward[i+1] = max(b.longestBackward[i], backward)
	}
	least := t.leastTimes()
	b.whole = newPrefixes(t, least, priced, t.more(), 1+t.more())
	b.last = newPrefixes(t, least, priced, 0, 1)
	return b
}

// index returns the index of a stage in tables of all stages: those of a device that end at a cut
// follow each other.
func (t *tables) index(first, end, device int) int {
	n := len(t.job.Layers) + 1
	return (device*n+end)*n + first
}

// eachStage calls f for each stage.
func (t *tables) eachStage(f func(first, end, device int)) {
	for device := range t.job.Devices {
		for end := 1; end <= len(t.job.Layers); end++ {
			for first := range end {
				f(first, end, device)
			}
		}
	}
}

// stages returns a table of all stages.
func (t *tables) stages() []float64 {
	n := len(t.job.Layers) + 1
	return make([]float64, n*n*len(t.job.Devices))
}

// leastTimes returns the least time of one micro-batch in each stage.
func (t *tables) leastTimes() []float64 {
	all := t.stages()
	t.eachStage(func(first, end, device int) { all[t.index(first, end, device)] = t.least(first, end, device) })
	return all
}

// newPrefixes returns the tables for a limit of forward times a stage's forward pass, backward
// times its backward pass, and its reduction.
func newPrefixes(t *tables, least []float64, priced bool, forward, backward float64) prefixes {
	p := prefixes{t: t, least: least, limited: t.stages()}
	takes := func(first, end, device int) float64 {
		work := forward*t.forward(first, end, device) + backward*t.backward(first, end, device)
		return work + t.sync(first, end, device)
	}
	t.eachStage(func(first, end, device int) {
		limited := &p.limited[t.index(first, end, device)]
		*limited = takes(first, end, device)
		if !t.recompute && t.memory(first, end, 1, device) > t.job.Devices[device].Memory {
			*limited = math.Inf(1)
		}
	})
	for device := range t.job.Devices {
		p.most = max(p.most, takes(0, len(t.job.Layers), device))
	}
	if priced {
		p.rate = exchangeRates(t)
		p.rates = rates
	}
	return p
}

// exchangeRates returns 0 and rates around that of the highest price to the time of a layer.
func exchangeRates(t *tables) (r [rates]float64) {
	n, price, least := len(t.job.Layers), 0.0, math.Inf(1)
	for device, d := range t.job.Devices {
		price, least = max(price, d.Price), min(least, t.forward(0, n, device)+t.backward(0, n, device))
	}
	if layer := least / float64(n); layer > 0 {
		for i := range r[1:] {
			r[i+1] = price / layer * 16 * math.Pow(3, -float64(i))
		}
	}
	return r
}

// fill computes the tables of one level.
func (p *prefixes) fill(level int) {
	n, limit := len(p.t.job.Layers), p.most*float64(level)/levels
	p.time[level] = make([]float64, n+1)
	p.mixed[level] = make([][rates]float64, n+1)
	for end := 1; end <= n; end++ {
		time, mixed := math.Inf(1), infinite
		for device := range p.t.job.Devices {
			p.prepend(level, limit, end, device, &time, &mixed)
		}
		p.time[level][end], p.mixed[level][end] = time, mixed
	}
}

// infinite are prices of no division.
var infinite = func() (all [rates]float64) {
	for r := range all {
		all[r] = math.Inf(1)
	}
	return all
}()

// prepend lowers time and mixed to those of the divisions whose last stage is on a device and ends
// at a cut.
func (p *prefixes) prepend(level int, limit float64, end, device int, time *float64, mixed *[rates]float64) {
	price, row := p.t.job.Devices[device].Price, p.t.index(0, end, device)
	for first := end - 1; first >= 0; first-- {
		if !(p.limited[row+first] <= limit) {
			if p.t.recompute {
				continue
			}
			return
		}
		takes, before := p.least[row+first], &p.mixed[level][first]
		*time = min(*time, p.time[level][first]+takes)
		for r := range p.rates {
			mixed[r] = min(mixed[r], before[r]+price+p.rate[r]*takes)
		}
	}
}

// least returns the least time of one micro-batch in a stage, with its sends in both directions.
func (t *tables) least(first, end, device int) float64 {
	d := &t.job.Devices[device]
	takes := t.forward(first, end, device) + t.backward(first, end, device)
	if end < len(t.job.Layers) {
		takes += 2 * (t.input(end)/d.shared(t.div.devices()) + d.Latency)
	}
	return takes
}

// at returns the least price and time of the layers before the cut, when no stage may take more
// than limit and all together no more than total.
func (p *prefixes) at(cut int, limit, total float64) (price, time float64) {
	if !(limit >= 0 && total >= 0) {
		return math.Inf(1), math.Inf(1)
	}
	level := levels
	if limit < p.most {
		level = min(levels, int(math.Ceil(limit/p.most*levels*(1+1e-9))))
	}
	if p.time[level] == nil {
		p.fill(level)
	}
	time = p.time[level][cut]
	if p.rates == 0 {
		return 0, time
	}
	mixed := &p.mixed[level][cut]
	price = mixed[0]
	if math.IsInf(total, 1) {
		return price, time
	}
	total *= 1 + 1e-12
	for r, rate := range p.rate { // the innermost loop of a search: max, which minds NaN, takes longer
		if least := mixed[r] - rate*total; least > price {
			price = least
		}
	}
	return price, time
}

// bound returns a lower bound of the objective's value of all choices that end with s and are
// better than the best choice of the search; +Inf if there are none.
func (b *bounds) bound(s suffix, of *search) float64 {
	time, price := b.timeBound(s), s.price
	for range 3 {
		// A time above the objective's bound, or at which these devices cost too much, is of no
		// use; that limits the time of a stage.
		allowed := of.mostTime(price*float64(b.t.div.devices())) * (1 + 1e-12)
		if time > allowed {
			return math.Inf(1)
		}
		p, t := b.before(s, allowed)
		price, time = s.price+p, max(time, t)
	}
	const rounding = 1 - 1e-12
	return of.objective.value(time*rounding, time*price*float64(b.t.div.devices())*rounding)
}

// timeBound returns a lower bound of the time of all choices that end with s.
func (b *bounds) timeBound(s suffix) float64 {
	forward := s.forwardSum + b.leastForward[s.at] + b.t.more()*max(s.forwardMax, b.longestForward[s.at])
	return forward + max(s.end, b.backwardBound(s))
}

// backwardBound returns a lower bound of the end of the first stage's backward pass.
func (b *bounds) backwardBound(s suffix) float64 {
	return s.backwardSum + b.leastBackward[s.at] + b.t.more()*max(s.backwardMax, b.longestBackward[s.at])
}

// before returns the least price of the stages before s, and the least time of a step with them,
// if the step takes no longer than allowed.
func (b *bounds) before(s suffix, allowed float64) (price, time float64) {
	left := allowed - s.forwardSum - s.backwardSum
	limit := left - b.leastForward[s.at]
	held := b.t.more() * (max(s.forwardMax, b.longestForward[s.at]) + max(s.backwardMax, b.longestBackward[s.at]))
	price, add := b.whole.at(s.at, limit, left-held)
	price2, add2 := b.last.at(s.at, limit-held, left-held)
	return max(price, price2), s.forwardSum + s.backwardSum + held + max(add, add2)
}

// mostTime returns the longest time of a step with which a plan becomes the best, if its devices
// have that price.
func (s *search) mostTime(price float64) float64 {
	most := math.Inf(1)
	if s.objective.MaxTime > 0 {
		most = s.objective.MaxTime
	}
	if s.objective.MaxCost > 0 {
		most = min(most, s.objective.MaxCost/price)
	}
	if s.objective.Cheapest {
		return min(most, s.bestValue/price)
	}
	return min(most, s.bestValue)
}
