package tiers

import (
	"cmp"
	"slices"
	"sort"
)

// Best returns the plan of a checked trace: no tensor leaves the device if all fit. Otherwise the
// tensors that lie unused for the longest time while the device is fullest leave it first, to the
// fastest tier with room. A read begins as late as the tensors that are used later allow, and no
// earlier than the device has room for its result. Best also tries plans that move more than
// necessary, which makes room for reading ahead, and chooses the plan that waits least.
//
// The result may exceed the limits: Predicted says so.
func Best(t *Trace) Plan {
	p := newPlanner(t)
	best := Plan{}
	for _, share := range []float64{1, 0.9, 0.75, 0.5, 0.25} {
		placements := p.assignTiers(int64(share * float64(t.Limits[Device])))
		found := Plan{Placements: placements, Predicted: Simulate(t, placements)}
		if best.Placements == nil || found.Predicted.before(&best.Predicted) {
			best = found
		}
		if best.Predicted.Waited == 0 && !best.Predicted.Exceeds {
			break
		}
	}
	return best
}

// before reports whether a prediction is better than another one.
func (p *Prediction) before(other *Prediction) bool {
	if p.Exceeds != other.Exceeds {
		return other.Exceeds
	}
	return p.Seconds < other.Seconds
}

type planner struct {
	trace       *Trace
	saved, used []int
}

func newPlanner(t *Trace) *planner {
	saved, used := t.lives()
	return &planner{trace: t, saved: saved, used: used}
}

// assignTiers returns placements that keep at most limit bytes between the tensors' events.
func (p *planner) assignTiers(limit int64) []Placement {
	n := len(p.trace.Sizes)
	placements := make([]Placement, n)
	full := make([][tiers]bool, n)
	held := [tiers][]int64{Device: make([]int64, 2*n), Host: make([]int64, 2*n), Disk: make([]int64, 2*n)}
	for i := range n {
		p.add(held[Device], i, p.trace.Sizes[i])
	}
	longest := p.byIdleTime()
	for {
		fullest := indexOfMax(held[Device])
		if n == 0 || held[Device][fullest] <= limit {
			break
		}
		i, tier := p.choose(longest, placements, &held, full, fullest)
		if i < 0 {
			break
		}
		placements[i].Tier = tier
		p.add(held[Device], i, -p.trace.Sizes[i])
		p.add(held[tier], i, p.trace.Sizes[i])
	}
	p.schedule(placements, held[Device])
	return placements
}

// add adds bytes to those held after each event between a tensor's two events.
func (p *planner) add(held []int64, i int, bytes int64) {
	for e := p.saved[i]; e < p.used[i]; e++ {
		held[e] += bytes
	}
}

func indexOfMax(held []int64) (at int) {
	for e, bytes := range held {
		if bytes > held[at] {
			at = e
		}
	}
	return at
}

// byIdleTime returns the tensors, the longest unused ones first.
func (p *planner) byIdleTime() []int {
	order := make([]int, len(p.trace.Sizes))
	for i := range order {
		order[i] = i
	}
	idle := func(i int) float64 { return p.trace.Times[p.used[i]] - p.trace.Times[p.saved[i]] }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(idle(b), idle(a)) })
	return order
}

// choose returns the tensor that leaves the device next, of those on the device after an event, and
// its tier; -1 if there is none. It records in full the tiers without room for a tensor, which never
// get any: tensors only enter them. So the room for each tensor is computed a few times, however
// often choose is called.
func (p *planner) choose(order []int, placements []Placement, held *[tiers][]int64, full [][tiers]bool, event int) (int, Tier) {
	for _, i := range order {
		if placements[i].Tier != Device || p.saved[i] > event || p.used[i] <= event || p.used[i] == p.saved[i]+1 || p.trace.Sizes[i] == 0 {
			continue
		}
		for tier := Host; tier < tiers; tier++ {
			if full[i][tier] {
				continue
			}
			if p.trace.Limits[tier] > 0 && slices.Max(held[tier][p.saved[i]:p.used[i]])+p.trace.Sizes[i] <= p.trace.Limits[tier] {
				return i, tier
			}
			full[i][tier] = true
		}
	}
	return -1, Device
}

// schedule sets when tensors are read back: as late as the serial link allows, and while the device
// has room, given the bytes held after each event.
func (p *planner) schedule(placements []Placement, held []int64) {
	t := p.trace
	var moved []int
	for i := range placements {
		if placements[i].Tier != Device {
			moved = append(moved, i)
		}
	}
	slices.SortFunc(moved, func(a, b int) int { return p.used[a] - p.used[b] })
	latest := make(map[int]float64, len(moved))
	end := 0.0
	for k, i := range slices.Backward(moved) {
		if use := t.Times[p.used[i]]; k == len(moved)-1 || use < end {
			end = use
		}
		end -= float64(t.Sizes[i]) / t.Read[placements[i].Tier]
		latest[i] = end
	}
	for _, i := range moved {
		// The last event that is early enough, or the first one after the tensor was saved.
		at := sort.SearchFloat64s(t.Times, latest[i]) - 1
		at = min(max(at, p.saved[i]), p.used[i]-1)
		for e := p.used[i] - 1; e >= at; e-- {
			if held[e]+t.Sizes[i] > t.Limits[Device] {
				at = min(e+1, p.used[i]-1)
				break
			}
		}
		placements[i].Prefetch = at
		for e := at; e < p.used[i]; e++ {
			held[e] += t.Sizes[i]
		}
	}
}
