package placement

// Greedy decides as for large graphs.
func Greedy(p Problem) Estimate {
	e := newEvaluator(&p)
	s := search{e: e, best: e.bestSingle()}
	s.estimate = e.estimate(s.best)
	s.greedy()
	return s.estimate
}

// Exact searches all assignments.
func Exact(p Problem) Estimate {
	e := newEvaluator(&p)
	s := search{e: e, best: e.bestSingle()}
	s.estimate = e.estimate(s.best)
	s.exhaustive()
	return s.estimate
}
