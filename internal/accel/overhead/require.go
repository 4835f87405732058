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
	// Possible is false when no bandwidth suffices: the round trips alone cost too much.
	Possible bool
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
	o.Intervals = false
	s := search{open: open, maxSlowdown: maxSlowdown, o: o, out: make([]Requirement, len(rtts))}
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
	open        Open
	maxSlowdown float64
	o           Options
	low, high   []float64
	out         []Requirement
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
	s.out[i].Possible = tried[searchWidth].Slowdown() <= s.maxSlowdown
	if !s.out[i].Possible {
		return
	}
	k := 0
	for tried[k].Slowdown() > s.maxSlowdown {
		k++
	}
	s.low[i], s.high[i] = s.at(i, max(0, k-1)), s.at(i, k)
}
