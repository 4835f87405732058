package overhead

import (
	"math"
	"time"

	"github.com/outboard-run/outboard"
)

// Requirement is the slowest network that keeps within a slowdown, for one round-trip time.
type Requirement struct {
	RTT time.Duration
	// Bandwidth is the least that suffices, in bits per second, the same in both directions.
	Bandwidth float64
	// Possible is false when no bandwidth suffices: messages and round trips alone cost too much.
	Possible bool
	// Low and High enclose Bandwidth as Low and High of a Prediction enclose its Wall: a run over
	// less than Low is slower than the bound, and a run over High or more keeps it, in 97.5 % of
	// the runs each. 0 means that no bandwidth suffices for that. Both are 0 without
	// Options.Intervals.
	Low, High float64
}

// The bandwidths between which a requirement is searched, and how: each round of the search
// predicts a few bandwidths of the remaining interval at once, for all round-trip times.
const (
	leastBandwidth = 1e6
	mostBandwidth  = 1e12
	searchWidth    = 16
	searchRounds   = 4
)

// Require finds, for each round-trip time, the least bandwidth with which the program is no
// slower than maxSlowdown times its local run. Predictions are monotone in the bandwidth, so the
// search is a bisection.
func Require(open Open, rtts []time.Duration, maxSlowdown float64, o Options) ([]Requirement, error) {
	if !(maxSlowdown > 0) {
		return nil, outboard.Errorf(outboard.Invalid, "predict", "a slowdown of %g: want more than 0", maxSlowdown)
	}
	bounds := make([]float64, len(rtts))
	for i := range bounds {
		bounds[i] = maxSlowdown
	}
	out, err := findLeast(open, rtts, bounds, o)
	if err != nil || !o.Intervals {
		return out, err
	}
	return out, enclose(open, out, bounds, o)
}

// enclose sets Low and High. The relative width of a prediction's interval hardly depends on the
// bandwidth, so that at the least bandwidth applies to the whole search.
func enclose(open Open, found []Requirement, bounds []float64, o Options) error {
	links, rtts := make([]Link, len(found)), make([]time.Duration, len(found))
	for i, r := range found {
		bandwidth := r.Bandwidth
		if !r.Possible {
			bandwidth = mostBandwidth
		}
		rtts[i], links[i] = r.RTT, Link{RTT: r.RTT, Up: bandwidth, Down: bandwidth}
	}
	predictions, err := Predict(open, links, o)
	if err != nil {
		return err
	}
	for _, end := range []struct {
		wall func(*Prediction) time.Duration
		set  func(*Requirement, float64)
	}{
		{func(p *Prediction) time.Duration { return p.Low }, func(r *Requirement, v float64) { r.Low = v }},
		{func(p *Prediction) time.Duration { return p.High }, func(r *Requirement, v float64) { r.High = v }},
	} {
		scaled := make([]float64, len(bounds))
		for i, p := range predictions {
			scaled[i] = bounds[i] * float64(p.Wall) / float64(max(1, end.wall(&p)))
		}
		ends, err := findLeast(open, rtts, scaled, o)
		if err != nil {
			return err
		}
		for i, r := range ends {
			if r.Possible {
				end.set(&found[i], r.Bandwidth)
			}
		}
	}
	return nil
}

// findLeast finds the least bandwidth for each round-trip time and its greatest slowdown.
func findLeast(open Open, rtts []time.Duration, bounds []float64, o Options) ([]Requirement, error) {
	o.Intervals = false
	s := search{open: open, bounds: bounds, o: o, out: make([]Requirement, len(rtts))}
	for i, rtt := range rtts {
		s.out[i].RTT = rtt
		s.low, s.high = append(s.low, math.Log(leastBandwidth)), append(s.high, math.Log(mostBandwidth))
	}
	for range searchRounds {
		if err := s.round(); err != nil {
			return nil, err
		}
	}
	for i := range s.out {
		s.out[i].Bandwidth = math.Exp(s.high[i])
	}
	return s.out, nil
}

// search holds, for each requirement, the logarithms of the bandwidths between which it lies.
type search struct {
	open      Open
	bounds    []float64 // the greatest slowdown of each requirement
	o         Options
	low, high []float64
	out       []Requirement
}

func (s *search) round() error {
	var links []Link
	for i, r := range s.out {
		for k := range searchWidth + 1 {
			bandwidth := math.Exp(s.at(i, k))
			links = append(links, Link{RTT: r.RTT, Up: bandwidth, Down: bandwidth})
		}
	}
	predictions, err := Predict(s.open, links, s.o)
	if err != nil {
		return err
	}
	for i := range s.out {
		s.narrow(i, predictions[i*(searchWidth+1):(i+1)*(searchWidth+1)])
	}
	return nil
}

// at returns the k-th of the bandwidths that are tried for requirement i; the last is the upper
// end.
func (s *search) at(i, k int) float64 {
	return s.low[i] + (s.high[i]-s.low[i])*float64(k)/searchWidth
}

// narrow reduces the interval of requirement i to that between the last bandwidth that is too slow
// and the first that is not.
func (s *search) narrow(i int, tried []Prediction) {
	s.out[i].Possible = tried[searchWidth].Slowdown() <= s.bounds[i]
	if !s.out[i].Possible {
		return
	}
	k := 0
	for tried[k].Slowdown() > s.bounds[i] {
		k++
	}
	s.low[i], s.high[i] = s.at(i, max(0, k-1)), s.at(i, k)
}
