package cost

// A Capacity bounds what several resources can do together: the cores of one processor, or a
// link that several programs share.
//
// The work that is added to it counts from the last synchronization. At a synchronization the
// program has waited for all of it, so the time that has passed is at least the work divided by
// the number of cores.
type Capacity struct {
	e    *Evaluator
	r    Resource
	k    Time
	work Time // since the last synchronization
}

// Capacity adds a capacity of the given number of cores, at least 1. slowdown is a factor on
// the work in each setting, as in [Profile].
func (e *Evaluator) Capacity(cores int, slowdown []float64) (*Capacity, error) {
	r, err := e.Resource(Profile{Slowdown: slowdown})
	return &Capacity{e: e, r: r, k: Time(max(1, cores))}, err
}

// Use adds work that runs on one of the cores at some time before the next synchronization.
func (c *Capacity) Use(work Time) { c.work += max(0, work) }

// Synchronize says that the resource waited for all that was added: it is free no earlier than
// the cores allow, and what is added from now on begins no earlier than the resource is free.
func (c *Capacity) Synchronize(r Resource) {
	c.e.Add(Task{On: c.r, Cost: c.work / c.k})
	c.work = 0
	c.e.Wait(r, c.e.Free(c.r))
	c.e.Wait(c.r, c.e.Free(r))
}
