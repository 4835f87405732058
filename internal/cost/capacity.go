package cost

// A Capacity bounds what several resources can do together: the cores of one processor, or a link
// that several programs share. Each sequence of work that waits for its own completion has a
// [Share].
type Capacity struct {
	e        *Evaluator
	k        Time
	slowdown []float64
	shares   []*Share
}

// Capacity adds a capacity of the given number of cores, at least 1. slowdown is a factor on
// the work in each setting, as in [Profile].
func (e *Evaluator) Capacity(cores int, slowdown []float64) *Capacity {
	return &Capacity{e: e, k: Time(max(1, cores)), slowdown: slowdown}
}

// A Share is the part of a capacity that one sequence of work uses, such as a thread.
//
// The work that is added to it counts from its last synchronization. At a synchronization all of it
// is done, so the time that has passed is at least the work divided by the number of cores. Cores
// are shared fairly: meanwhile the other shares did as much, as far as they have had work since
// their own last synchronizations. No share waits for the moments at which others synchronized.
type Share struct {
	of *Capacity
	r  Resource
	// work is what was added since the last synchronization; counted is the part of it that other
	// shares have taken into account.
	work, counted Time
}

// Share adds a share.
func (c *Capacity) Share() (*Share, error) {
	r, err := c.e.Resource(Profile{Slowdown: c.slowdown})
	s := &Share{of: c, r: r}
	c.shares = append(c.shares, s)
	return s, err
}

// Use adds work that runs on one of the cores at some time before the next synchronization.
func (s *Share) Use(work Time) { s.work += max(0, work) }

// Synchronize records that the resource waited for all work added to the share: it is free no
// earlier than the cores allow, and work added from now on begins no earlier than the resource is
// free.
func (s *Share) Synchronize(r Resource) {
	e := s.of.e
	e.Add(Task{On: s.r, Cost: (s.work + s.besides()) / s.of.k})
	s.work, s.counted = 0, 0
	e.Wait(r, e.Free(s.r))
	e.Wait(s.r, e.Free(r))
}

// besides returns the work of the other shares that the cores did meanwhile.
func (s *Share) besides() Time {
	var sum Time
	for _, other := range s.of.shares {
		if other == s {
			continue
		}
		part := min(other.work-other.counted, s.work-sum)
		other.counted += part
		sum += part
	}
	return sum
}
