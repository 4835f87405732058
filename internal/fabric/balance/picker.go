package balance

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/outboard-run/outboard/fabric/call"
)

// picker is the only implementation of Picker. Its times are durations since epoch, which is set
// before the first snapshot is published and never again.
type picker struct {
	config   Config
	epoch    time.Time
	snapshot atomic.Pointer[snapshot]

	mu        sync.Mutex
	endpoints []Endpoint
	states    map[string]*state
	members   []*member // members in the subset, nearest first
	left      []*member // members outside the subset
	shares    [tiers]float64
	computed  time.Duration // when spill-over was last computed
	swept     time.Duration // when success rates were last compared
}

// A member is an endpoint in one update, with the state that outlives the update.
type member struct {
	Endpoint
	tier  int
	state *state
}

// state is the state of an endpoint, by its ID.
type state struct {
	outstanding atomic.Int64
	picks       atomic.Uint64
	share       atomic.Uint64 // the weight for least requests, as the bits of a float64
	load        load
	health      health
	since       time.Duration // when the endpoint was added, for slow start; under picker.mu
}

func (s *state) weight() float64 { return math.Float64frombits(s.share.Load()) }

// A snapshot is the immutable input of picks.
type snapshot struct {
	tiers []tier
	all   []*member
	due   time.Duration // when the snapshot has to be rebuilt
}

// Update implements Picker.
func (p *picker) Update(endpoints []Endpoint, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.snapshot.Load() == nil {
		p.epoch = now
		p.shares = [tiers]float64{1, 1, 1}
	}
	at := now.Sub(p.epoch)
	p.endpoints = sorted(endpoints)
	p.adopt(at)
	p.liftEjections(at)
	p.rebuild(at)
}

func sorted(endpoints []Endpoint) []Endpoint {
	out := slices.Clone(endpoints)
	slices.SortStableFunc(out, func(a, b Endpoint) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b Endpoint) bool { return a.ID == b.ID })
}

// adopt makes members of the endpoints and removes the state of endpoints that are gone.
func (p *picker) adopt(at time.Duration) {
	states := make(map[string]*state, len(p.endpoints))
	var byTier [tiers][]*member
	for _, e := range p.endpoints {
		s := p.states[e.ID]
		if s == nil {
			s = &state{since: at}
		}
		states[e.ID] = s
		t := p.config.Locality.tier(&e)
		byTier[t] = append(byTier[t], &member{Endpoint: e, tier: t, state: s})
	}
	p.states, p.members, p.left = states, nil, nil
	for _, list := range byTier {
		in, out := p.config.Subset.choose(list)
		p.members = append(p.members, in...)
		p.left = append(p.left, out...)
	}
}

// refresh rebuilds the snapshot when it is due, unless another goroutine is rebuilding it.
func (p *picker) refresh(at time.Duration) {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if at >= p.snapshot.Load().due {
		p.rebuild(at)
	}
}

// rebuild publishes a snapshot of the current state. The caller holds mu.
func (p *picker) rebuild(at time.Duration) {
	due := at + p.sweep(at)
	s := &snapshot{all: p.members}
	weights, soon := p.weigh(at)
	due = min(due, at+soon)
	for begin := 0; begin < len(p.members); {
		end := begin
		for end < len(p.members) && p.members[end].tier == p.members[begin].tier {
			end++
		}
		if t := p.tierOf(begin, end, weights, at, &due); len(t.members) > 0 {
			s.tiers = append(s.tiers, t)
		}
		begin = end
	}
	p.spill(s, at)
	s.due = due
	p.snapshot.Store(s)
}

// tierOf returns a tier of the members in [begin, end) that are not ejected.
func (p *picker) tierOf(begin, end int, weights []float64, at time.Duration, due *time.Duration) tier {
	var members []*member
	var shares []float64
	for i := begin; i < end; i++ {
		m := p.members[i]
		if until := m.state.health.until(); until > at {
			*due = min(*due, until)
			continue
		}
		members = append(members, m)
		shares = append(shares, weights[i])
	}
	return newTier(members, shares, p.config.Random())
}

// Pick implements Picker.
func (p *picker) Pick(_ *call.Head, exclude []string, now time.Time) (Pick, error) {
	s := p.snapshot.Load()
	if s == nil || len(s.all) == 0 {
		return Pick{}, ErrNoEndpoints
	}
	if at := now.Sub(p.epoch); at >= s.due {
		p.refresh(at)
		s = p.snapshot.Load()
		if len(s.all) == 0 {
			return Pick{}, ErrNoEndpoints
		}
	}
	m := p.choose(s, exclude)
	m.state.outstanding.Add(1)
	m.state.picks.Add(1)
	return Pick{picker: p, member: m}, nil
}

// choose visits the tiers from the nearest. A tier that spills over is skipped; if no farther tier
// accepts the call, choose returns the least loaded member that it has visited.
func (p *picker) choose(s *snapshot, exclude []string) *member {
	var spare *member
	for i := range s.tiers {
		t := &s.tiers[i]
		m := t.pick(p, exclude)
		if m == nil {
			continue
		}
		last := i == len(s.tiers)-1
		if last && spare == nil || !last && !p.spillsOver(t, m) || last && !p.busy(m) {
			return m
		}
		if spare == nil || m.state.pressure() < spare.state.pressure() {
			spare = m
		}
	}
	if spare != nil {
		return spare
	}
	return s.pickAny(exclude, p.config.Random())
}

// pickAny picks a member when every member is excluded or ejected.
func (s *snapshot) pickAny(exclude []string, random uint64) *member {
	for i := range s.tiers {
		if n := len(s.tiers[i].members); n > 0 {
			return s.tiers[i].members[random%uint64(n)]
		}
	}
	n := uint64(len(s.all))
	for i := range n {
		if m := s.all[(random+i)%n]; !slices.Contains(exclude, m.ID) {
			return m
		}
	}
	return s.all[random%n]
}

// pressure returns the number of outstanding requests per unit of weight, the next request
// included.
func (s *state) pressure() float64 {
	return float64(s.outstanding.Load()+1) / s.weight()
}

func (p *picker) done(m *member, o Outcome, now time.Time) {
	m.state.outstanding.Add(-1)
	at := now.Sub(p.epoch)
	if o.Load != nil {
		m.state.load.apply(&p.config.Reports, o.Load, at)
	}
	if p.config.Ejection.enabled() {
		p.recordOutcome(m, o.Err, at)
	}
}

// Report implements Picker.
func (p *picker) Report(id string, report *orca.OrcaLoadReport, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.states[id]; s != nil {
		s.load.apply(&p.config.Reports, report, now.Sub(p.epoch))
	}
}

// Status implements Picker.
func (p *picker) Status(now time.Time) []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := now.Sub(p.epoch)
	out := make([]Status, 0, len(p.members)+len(p.left))
	var sums [tiers]float64
	for _, m := range p.members {
		if m.state.health.until() <= at {
			sums[m.tier] += m.state.weight()
		}
	}
	for _, m := range p.members {
		s := p.statusOf(m, at)
		if s.Subset = true; !s.Ejected {
			s.Weight = m.state.weight() / sums[m.tier]
		}
		out = append(out, s)
	}
	for _, m := range p.left {
		out = append(out, p.statusOf(m, at))
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (p *picker) statusOf(m *member, at time.Duration) Status {
	utilization, _ := m.state.load.utilizationAt(&p.config.Reports, at)
	return Status{
		ID: m.ID, Tier: m.tier, Utilization: utilization,
		Outstanding: m.state.outstanding.Load(), Picks: m.state.picks.Load(),
		Ejected: m.state.health.until() > at, Ejections: m.state.health.ejections.Load(),
	}
}
