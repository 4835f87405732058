package placement

// Greedy is what is decided about large graphs.
func Greedy(p Problem) Estimate {
	e := newEvaluator(&p)
	s := search{e: e, best: e.bestSingle()}
	s.estimate = e.estimate(s.best)
	s.greedy()
	return s.estimate
}

// Exact is the best of all assignments.
func Exact(p Problem) Estimate {
	e := newEvaluator(&p)
	s := search{e: e, best: e.bestSingle()}
	s.estimate = e.estimate(s.best)
	s.all()
	return s.estimate
}
