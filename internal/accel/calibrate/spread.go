package calibrate

import (
	"math"
	"slices"
	"time"

	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// setSpreads sets the relative standard deviations of the constants, and of the work that they
// stand for: how much the samples differ, each of which is a process of its own.
func setSpreads(c *overhead.Constants, direct, ring, network *Path) {
	c.Spread = max(c.Spread, direct.spread(func(s *Sample) float64 { return s.Stream }))
	c.DeviceSpread = max(
		direct.spread(func(s *Sample) float64 { return s.Speed.Arithmetic }),
		direct.spread(func(s *Sample) float64 { return s.Speed.Memory }),
	)
	far := ring
	if network != nil && len(network.Samples) > 0 {
		far = network
	}
	c.ForwardingSpread = max(
		far.spread(func(s *Sample) float64 { return s.Stream }),
		far.spread(func(s *Sample) float64 { return s.Write }),
		far.spread(func(s *Sample) float64 { return s.Read }),
	)
	if start := float64(c.StartUp + c.Open); start > 0 {
		wall := func(s *Sample) float64 { return s.Wall }
		c.StartUpSpread = min(mostSpread, far.spread(wall)*far.median(wall)/start)
	}
}

// mostSpread bounds a relative standard deviation: a prediction is linear in it.
const mostSpread = 0.5

// spread is the relative standard deviation of a quantity over the samples, as wide as so few of
// them demand; 0 where there are fewer than three. It comes from their quartiles: one sample of five
// that something else disturbed does not count.
func (w *Path) spread(of func(*Sample) float64) float64 {
	n, median := len(w.Samples), w.median(of)
	if n < 3 || median <= 0 {
		return 0
	}
	values := w.sorted(of)
	low, high := n/4, n-1-n/4
	distance := normalScore(high, n) - normalScore(low, n)
	return min(mostSpread, (values[high]-values[low])/distance/median*studentFactor(n-1))
}

func (w *Path) median(of func(*Sample) float64) float64 {
	values := w.sorted(of)
	if len(values) == 0 {
		return 0
	}
	return values[len(values)/2]
}

// normalScore returns the expected value, in standard deviations, of the i-th smallest, from 0, of
// n normally distributed numbers (Blom, "Statistical Estimates and Transformed Beta-Variables",
// 1958).
func normalScore(i, n int) float64 {
	return math.Sqrt2 * math.Erfinv(2*(float64(i)+1-0.375)/(float64(n)+0.25)-1)
}

// studentFactor returns the 97.5 % quantile of Student's t distribution as a multiple of that of
// the normal distribution: the factor by which an interval is wider if its standard deviation is an
// estimate with that many degrees of freedom (Abramowitz and Stegun, "Handbook of Mathematical
// Functions", 26.7.5).
func studentFactor(freedom int) float64 {
	const z = 1.959964
	v := float64(freedom)
	return 1 + (z*z+1)/(4*v) + (5*math.Pow(z, 4)+16*z*z+3)/(96*v*v)
}

// Spread returns the relative standard deviation of times, estimated from their quartiles, so that
// a few disturbed runs do not count.
func Spread(times []time.Duration) float64 {
	if len(times) < 4 {
		return 0
	}
	s := slices.Sorted(slices.Values(times))
	median := float64(s[len(s)/2])
	if median <= 0 {
		return 0
	}
	// The quartiles of a normal distribution are 1.349 standard deviations apart.
	return math.Min(mostSpread, float64(s[len(s)*3/4]-s[len(s)/4])/1.349/median)
}
