package cost

// A vector holds one time for each lane of a block.
type vector [laneBlock]int64

// serveOne applies a task lane by lane, for processors without kernels.
func (k *block) serveOne(free, after, done *vector, p *blockProfile, o *op) {
	if p.plain {
		servePlain(free, after, done, &p.latency, o.cost)
	} else {
		serve(free, after, done, p, o.cost, o.units)
	}
}

// serve applies a task to the resource that is free at the times in free. It rounds up, so that
// no task becomes shorter when it is split.
func serve(free, after, done *vector, p *blockProfile, cost, units int64) {
	for i := range free {
		t := max(free[i], after[i]) + (cost*p.slowdown[i]+slowdownRound)>>slowdownBits + (units*p.perUnit[i]+perUnitRound)>>perUnitBits
		free[i] = t
		done[i] = t + p.latency[i]
	}
}

// servePlain is serve for a resource whose costs are the same in all settings.
func servePlain(free, after, done, latency *vector, cost int64) {
	for i := range free {
		t := max(free[i], after[i]) + cost
		free[i] = t
		done[i] = t + latency[i]
	}
}

func raise(to, from *vector) {
	for i := range to {
		to[i] = max(to[i], from[i])
	}
}
