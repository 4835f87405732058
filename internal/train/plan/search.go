package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// An Objective defines the best plan. The zero value asks for the fastest.
type Objective struct {
	// Cheapest asks for the lowest cost instead of the shortest time.
	Cheapest bool
	// MaxTime and MaxCost bound the other quantity: seconds and price of a step, 0 for no bound.
	MaxTime, MaxCost float64
}

// ErrNoPlan says that no choice fits the devices' memory and the objective's bounds.
var ErrNoPlan = errors.New("no plan fits")

// ErrUndecided says that the search was too large to be finished, and has found no plan until then.
var ErrUndecided = errors.New("no plan was found, and none was excluded: plan with looser bounds")

// Best returns the optimal plan of a job with at most MaxLayers layers, or the best plan found,
// with its gap, if the search was too large to be finished.
//
// The search goes from the last layer to the first and keeps, at each cut, the suffixes that no
// other suffix equals or beats in all respects (the Pareto set). Of two suffixes of one cut and
// device, the one that is better in all parts of the time stays better, whatever stages are put
// before both, so the optimum is among the kept suffixes. Suffixes that, by a lower bound, can't
// become better than the best plan so far are dropped, too.
func (j *Job) Best(ctx context.Context, o Objective) (Plan, error) {
	if err := j.Check(); err != nil {
		return Plan{}, err
	}
	if len(j.Layers) > MaxLayers {
		return Plan{}, fmt.Errorf("%d layers, at most %d: merge them first", len(j.Layers), MaxLayers)
	}
	s := search{job: j, objective: o, bestValue: math.Inf(1), proven: math.Inf(1), made: make(map[boundsKey]*bounds)}
	for _, width := range []int{6, 24, 0} {
		if err := s.all(ctx, width); err != nil {
			return Plan{}, err
		}
	}
	if s.best == nil && math.IsInf(s.proven, 1) {
		return Plan{}, fmt.Errorf("%w: %s", ErrNoPlan, j.reason(o))
	}
	if s.best == nil {
		return Plan{}, ErrUndecided
	}
	p, err := j.Evaluate(*s.best)
	p.Gap = max(0, 1-s.proven/s.bestValue)
	return p, err
}

// maxLabels bounds the search of one division of the batch. Searches for the shortest time need a
// few thousand; a search for the lowest cost under a deadline may need millions.
const maxLabels = 30_000

// A search finds the best choice of a job.
type search struct {
	job       *Job
	objective Objective
	best      *Choice
	bestValue float64
	// proven is a lower bound of the values of all choices that were not examined, +Inf if all were
	// examined or excluded.
	proven float64
	// made has the bounds of the examined divisions, for all passes.
	made map[boundsKey]*bounds
}

type boundsKey struct {
	division
	recompute bool
}

// bounds returns the bounds of a division, made once.
func (s *search) bounds(d division, recompute bool) *bounds {
	k := boundsKey{d, recompute}
	if s.made[k] == nil {
		s.made[k] = newBounds(newTables(s.job, d, recompute), s.objective.priced())
	}
	return s.made[k]
}

// priced reports whether the devices' prices matter.
func (o Objective) priced() bool { return o.Cheapest || o.MaxCost > 0 }

// all searches all divisions of the batch. With a width it keeps only about that many suffixes at
// each cut and device: a quick first search whose result bounds the exact one.
func (s *search) all(ctx context.Context, width int) error {
	for _, d := range s.job.divisions() {
		if !s.job.hasDevices(d.devices()) || s.job.mostStages(d) < max(s.job.Stages, 1) {
			continue
		}
		for _, recompute := range s.recomputes() {
			if err := ctx.Err(); err != nil {
				return err
			}
			b := newBranch(s, d, recompute, width)
			if !b.run(ctx) && width == 0 {
				s.proven = min(s.proven, b.bound(b.root(), s))
			}
		}
	}
	return ctx.Err()
}

// mostStages returns the most stages that a plan with a division of the batch may have.
func (j *Job) mostStages(d division) int {
	most := len(j.Layers)
	if j.Stages > 0 {
		most = j.Stages
	}
	if j.Ranks > 0 {
		most = min(most, j.Ranks/d.devices())
	}
	return most
}

// hasDevices reports whether there are n devices of one kind, as a stage needs.
func (j *Job) hasDevices(n int) bool {
	return slices.ContainsFunc(j.Devices, func(d Device) bool { return d.Count == 0 || d.Count >= n })
}

func (s *search) recomputes() []bool {
	if s.job.Recompute {
		return []bool{false, true}
	}
	return []bool{false}
}

// value returns the quantity that the objective minimises, +Inf if a bound is violated.
func (o Objective) value(time, cost float64) float64 {
	if (o.MaxTime > 0 && time > o.MaxTime) || (o.MaxCost > 0 && cost > o.MaxCost) {
		return math.Inf(1)
	}
	if o.Cheapest {
		return cost
	}
	return time
}

// A branch is the search over the cuts and devices of one division of the batch.
type branch struct {
	*tables
	*bounds
	search  *search
	width   int
	limited bool // some kinds of device have a count
	most    int  // stages of a plan
	labels  []label
	// open has, for each cut and device, the indices of the labels that are not dominated.
	open [][]int32
}

// A label is a suffix in the search.
type label struct {
	suffix
	after int32              // the label of the stages after the first, -1 for none
	used  [MaxDevices]uint32 // of the kinds that have a count
}

func newBranch(s *search, d division, recompute bool, width int) *branch {
	bounds := s.bounds(d, recompute)
	b := &branch{
		search: s, tables: bounds.t, bounds: bounds, width: width, most: s.job.mostStages(d),
		open: make([][]int32, (len(s.job.Layers)+1)*len(s.job.Devices)),
	}
	for _, k := range s.job.Devices {
		b.limited = b.limited || k.Count > 0
	}
	return b
}

// root returns the suffix without stages.
func (b *branch) root() suffix { return suffix{at: len(b.job.Layers), device: -1} }

// run extends the labels cut by cut, from the last layer to the first. It returns false if there
// were too many of them to try all.
func (b *branch) run(ctx context.Context) (complete bool) {
	if !b.promising(b.root()) {
		return true
	}
	b.extend(label{suffix: b.root(), after: -1}, -1)
	for at := len(b.job.Layers) - 1; at > 0; at-- {
		for device := range b.job.Devices {
			for _, i := range b.narrow(b.open[at*len(b.job.Devices)+device]) {
				if len(b.labels) > maxLabels || ctx.Err() != nil {
					return false
				}
				if b.promising(b.labels[i].suffix) {
					b.extend(b.labels[i], i)
				}
			}
		}
	}
	return true
}

// narrow returns the labels to extend: all of them, or about width of them: the best by time, by
// price, and by mixtures of both, since under a bound of time the cheapest suffixes leave too
// little time for the rest.
func (b *branch) narrow(open []int32) []int32 {
	if b.width == 0 || len(open) <= b.width {
		return open
	}
	var chosen []int32
	rates := b.whole.rate
	for i := 0; i < len(rates); i += 2 {
		slices.SortFunc(open, func(x, y int32) int {
			return cmp.Compare(b.mixed(&b.labels[x].suffix, rates[i]), b.mixed(&b.labels[y].suffix, rates[i]))
		})
		n := min(len(open), max(1, b.width/(len(rates)/2)))
		chosen = append(chosen, open[:n]...)
		open = open[n:]
	}
	return chosen
}

func (b *branch) mixed(s *suffix, rate float64) float64 { return s.price + rate*b.timeBound(*s) }

// extend puts every possible stage before the label at index i.
func (b *branch) extend(l label, i int32) {
	if l.stages == b.most {
		return
	}
	for device := range b.job.Devices {
		used := l.used
		if n := b.job.Devices[device].Count; n > 0 {
			if b.div.devices()+int(used[device]) > n {
				continue
			}
			used[device] += uint32(b.div.devices())
		}
		for first := l.at - 1; first >= 0; first-- {
			if b.memory(first, l.at, l.stages+1, device) > b.job.Devices[device].Memory {
				if b.growing() {
					break
				}
				continue
			}
			next := label{suffix: b.prepend(l.suffix, first, device), after: i, used: used}
			if first == 0 {
				b.finish(next)
			} else if b.promising(next.suffix) {
				b.add(next)
			}
		}
	}
}

// growing reports whether a stage never needs less memory with more layers. It may with
// recomputation, which stores the input of another layer instead.
func (b *branch) growing() bool { return !b.recompute }

// finish makes a suffix of all layers the best choice, if it is better than the best so far.
func (b *branch) finish(l label) {
	if b.job.Stages > 0 && l.stages != b.job.Stages {
		return
	}
	v := b.search.objective.value(b.time(l.suffix), b.cost(l.suffix))
	if v >= b.search.bestValue {
		return
	}
	c := b.div.choice()
	c.Recompute = b.recompute
	for at := l; ; at = b.labels[at.after] {
		end := len(b.job.Layers)
		if at.after >= 0 {
			end = b.labels[at.after].at
		}
		c.Stages = append(c.Stages, Stage{First: at.at, End: end, Device: at.device})
		if at.after < 0 {
			break
		}
	}
	b.search.best, b.search.bestValue = &c, v
}

// promising reports whether a suffix may still become better than the best choice.
func (b *branch) promising(s suffix) bool {
	return b.bound(s, b.search) < b.search.bestValue
}

// add keeps the label unless a kept label dominates it, and drops the labels that it dominates.
func (b *branch) add(l label) {
	open := &b.open[l.at*len(b.job.Devices)+l.device]
	kept := (*open)[:0]
	for n, i := range *open {
		if b.dominates(&b.labels[i], &l) {
			// No label before i was dropped: l would dominate that label, and i dominates l.
			if len(kept) == n {
				return
			}
			kept = append(kept, (*open)[n:]...)
			*open = kept
			return
		}
		if !b.dominates(&l, &b.labels[i]) {
			kept = append(kept, i)
		}
	}
	b.labels = append(b.labels, l)
	kept = append(kept, int32(len(b.labels)-1))
	*open = kept
}

// dominates reports whether, whatever stages are put before x and y, the plan of x is at least as
// good.
func (b *branch) dominates(x, y *label) bool {
	if b.search.objective.priced() && x.price > y.price {
		return false
	}
	if b.job.Stages > 0 && x.stages != y.stages || b.job.Ranks > 0 && x.stages > y.stages {
		return false // The number of stages that may be put before them differs.
	}
	if b.job.Schedule == OneForwardOneBackward && min(x.stages, b.div.steps) > min(y.stages, b.div.steps) {
		return false
	}
	return b.neverSlower(&x.suffix, &y.suffix) && (!b.limited || b.usesNoMore(x, y))
}

// neverSlower reports whether x takes no longer than y, whatever stages are put before both.
//
// The stages before add the same to the sums of both, and do not increase the amount by which a
// maximum of x exceeds that of y. So the forward passes differ by at most the difference of the
// sums plus that of the maxima, and so do the ends of backward passes and reductions; x may make up
// in one for its loss in the other.
func (b *branch) neverSlower(x, y *suffix) bool {
	forward := x.forwardSum - y.forwardSum + b.more()*max(0, x.forwardMax-y.forwardMax)
	backward := x.backwardSum - y.backwardSum + b.more()*max(0, x.backwardMax-y.backwardMax)
	end := x.end - max(y.end, b.backwardBound(*y)*(1-1e-12))
	difference := forward + max(backward, end)
	if difference == 0 {
		// The test without rounding: no part of x is above that of y.
		return forward <= 0 && backward <= 0 && x.end <= y.end
	}
	return difference < -1e-12*(y.forwardSum+y.end)
}

func (b *branch) usesNoMore(x, y *label) bool {
	for k, d := range b.job.Devices {
		if d.Count > 0 && x.used[k] > y.used[k] {
			return false
		}
	}
	return true
}
