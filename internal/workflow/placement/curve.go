package placement

import "math"

// curve is a non-decreasing piecewise linear function of time in seconds: 0 before its
// first point, interpolated between two points, and constant after the last one. Two
// points at the same time are a jump.
type curve []point

type point struct{ t, v float64 }

// jump returns a curve that is 0 before t and v from t on.
func jump(t, v float64) curve { return curve{{t, 0}, {t, v}} }

// ramp returns a curve that grows linearly from 0 to v between two times.
func ramp(from, to, v float64) curve { return curve{{from, 0}, {to, v}} }

// before returns the limit of the curve at t from the left, after its value at t.
func (c curve) before(t float64) float64 {
	v := 0.0
	for i, p := range c {
		if p.t < t {
			v = p.v
			continue
		}
		if i > 0 && p.t > c[i-1].t && c[i-1].t < t {
			return between(c[i-1], p, t)
		}
		return v
	}
	return v
}

func (c curve) after(t float64) float64 {
	v := 0.0
	for i, p := range c {
		if p.t <= t {
			v = p.v
			continue
		}
		if i > 0 && c[i-1].t <= t {
			return between(c[i-1], p, t)
		}
		return v
	}
	return v
}

func between(a, b point, t float64) float64 {
	return a.v + (b.v-a.v)*(t-a.t)/(b.t-a.t)
}

// sum returns the weighted sum of curves.
func sum(curves []curve, factors []float64) curve {
	var out curve
	for _, t := range times(curves) {
		var low, high float64
		for i, c := range curves {
			low += factors[i] * c.before(t)
			high += factors[i] * c.after(t)
		}
		if out = append(out, point{t, low}); high > low {
			out = append(out, point{t, high})
		}
	}
	return out
}

// times returns the distinct times of the curves' points in order.
func times(curves []curve) []float64 {
	var all []float64
	at := make([]int, len(curves))
	for {
		next := math.Inf(1)
		for i, c := range curves {
			if at[i] < len(c) {
				next = min(next, c[at[i]].t)
			}
		}
		if math.IsInf(next, 1) {
			return all
		}
		all = append(all, next)
		for i, c := range curves {
			for at[i] < len(c) && c[at[i]].t <= next {
				at[i]++
			}
		}
	}
}

// served returns the cumulative service of a work-conserving queue with the cumulative
// arrivals c, whose server starts at start and serves one unit per second.
func (c curve) served(start float64) curve {
	out := curve{{start, 0}}
	for i := range c {
		if p := c[i]; p.t > start {
			out = serve(out, c, p)
		}
	}
	return finish(out, c)
}

// serve extends out to the time of c's point p. A jump of c at p.t is not yet included.
func serve(out, c curve, p point) curve {
	last := out[len(out)-1]
	if p.t == last.t {
		return out
	}
	from, to := c.after(last.t), c.before(p.t)
	slope := (to - from) / (p.t - last.t)
	ahead := last.v + (p.t - last.t) // if the queue never runs empty
	switch {
	case from-last.v <= 0 && slope <= 1: // the queue is empty: arrivals limit the service
		return append(out, point{p.t, to})
	case ahead <= to || slope >= 1:
		return append(out, point{p.t, min(ahead, to)})
	}
	meet := last.t + (from-last.v)/(1-slope)
	return append(out, point{meet, last.v + meet - last.t}, point{p.t, to})
}

// finish extends out until the remaining backlog of c is served.
func finish(out, c curve) curve {
	last := out[len(out)-1]
	if total := c.total(); total > last.v {
		return append(out, point{last.t + total - last.v, total})
	}
	return out
}

// total returns the curve's last value.
func (c curve) total() float64 {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1].v
}

// end returns the time at which the curve reaches its last value.
func (c curve) end() float64 {
	if len(c) == 0 {
		return 0
	}
	i := len(c) - 1
	for i > 0 && c[i-1].v == c[i].v {
		i--
	}
	return c[i].t
}

// scaled normalizes the curve, so that its last value is 1.
func (c curve) scaled() curve {
	total := c.total()
	out := make(curve, len(c))
	for i, p := range c {
		out[i] = point{p.t, p.v / total}
	}
	return out
}
