package balance

import (
	"slices"
	"sync/atomic"
)

// A tier is the set of endpoints that are equally near and not ejected.
type tier struct {
	members []*member
	// weights are the members' weights in proportion to the largest, which is full.
	weights []uint16
	next    *atomic.Uint64
	// share is the fraction of the calls that stays in the tier; the rest spills over.
	share float64
}

const full = 1<<16 - 1

func newTier(members []*member, shares []float64, random uint64) tier {
	t := tier{members: members, weights: make([]uint16, len(members)), next: new(atomic.Uint64), share: 1}
	// A random start keeps clients that start together from picking the same endpoint.
	t.next.Store(random % (1 << 32))
	if len(members) == 0 {
		return t
	}
	largest := slices.Max(shares)
	for i, share := range shares {
		t.weights[i] = uint16(max(1, min(full, share/largest*full+0.5)))
	}
	return t
}

// pick returns nil when every member is excluded.
func (t *tier) pick(p *picker, exclude []string) *member {
	if p.config.Method == LeastRequests {
		return t.leastRequests(p, exclude)
	}
	// The tries are bounded: excluded members may take every turn, as a single member does.
	for range 4 * len(t.members) {
		if m := t.members[t.nextByStride()]; len(exclude) == 0 || !slices.Contains(exclude, m.ID) {
			return m
		}
	}
	return t.pickOther(p.config.Random(), exclude)
}

// nextByStride returns the index of the next member by static stride scheduling: of each `full`
// rounds, an endpoint takes part in as many as its weight. The offset by index keeps members of
// equal weight from skipping the same rounds. (Static stride as in Google's and grpc-go's weighted
// round robin.)
func (t *tier) nextByStride() int {
	n := uint64(len(t.members))
	for {
		sequence := t.next.Add(1)
		index, round := sequence%n, sequence/n
		weight := uint64(t.weights[index])
		if (weight*round+index*(full/2))%full >= full-weight {
			return int(index)
		}
	}
}

// leastRequests returns the least loaded of Choices different members, sampled at random.
func (t *tier) leastRequests(p *picker, exclude []string) *member {
	random := p.config.Random()
	var best *member
	// So few members are all compared: sampling could only leave one out.
	if n := len(t.members); n <= p.config.Choices {
		for i := range n {
			best = lessLoaded(best, t.members[(random+uint64(i))%uint64(n)], exclude)
		}
		return best
	}
	for found, tries := 0, 0; found < p.config.Choices && tries < 4*p.config.Choices; tries++ {
		m := t.members[t.sample(&random)]
		if m == best || slices.Contains(exclude, m.ID) {
			continue
		}
		best = lessLoaded(best, m, exclude)
		found++
	}
	if best == nil {
		return t.pickOther(random, exclude)
	}
	return best
}

// lessLoaded returns the member with less pressure; the first at a tie.
func lessLoaded(a, b *member, exclude []string) *member {
	switch {
	case slices.Contains(exclude, b.ID):
		return a
	case a == nil || b.state.pressure() < a.state.pressure():
		return b
	}
	return a
}

// sample draws a member in proportion to the weights.
func (t *tier) sample(random *uint64) int {
	n := uint64(len(t.members))
	for {
		*random = splitmix64(*random)
		index := (*random >> 32) % n
		if *random&full <= uint64(t.weights[index]) {
			return int(index)
		}
	}
}

// pickOther returns the first member from a random position that is not excluded.
func (t *tier) pickOther(random uint64, exclude []string) *member {
	n := uint64(len(t.members))
	for i := range n {
		if m := t.members[(random+i)%n]; !slices.Contains(exclude, m.ID) {
			return m
		}
	}
	return nil
}

// splitmix64 is one step of the splitmix64 generator.
func splitmix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
