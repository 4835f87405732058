package plot

import "math"

// Axis is one direction of a figure.
type Axis struct {
	Title string
	// Format formats a value with its unit.
	Format func(float64) string
	// Log spaces values by their logarithms.
	Log bool
	// Unlimited, if not 0, is the value that stands for no limit; it is drawn at the end.
	Unlimited float64
	// Least and Most, if they differ, are values that a chart's axis includes in any case.
	Least, Most float64
}

func (a Axis) format(v float64) string {
	if a.Unlimited != 0 && v == a.Unlimited {
		return "unlimited"
	}
	return a.Format(v)
}

// scale maps values between low and high to positions between from and to.
type scale struct {
	axis      Axis
	low, high float64
	from, to  float64
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.axis.Log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	if high == low {
		return (s.from + s.to) / 2
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// tickCount is the approximate number of ticks of an axis.
const tickCount = 8

// ticks returns round values between low and high, about tickCount of them.
func (s scale) ticks() []float64 {
	if s.axis.Log {
		return s.logTicks()
	}
	span := s.high - s.low
	if span <= 0 {
		return []float64{s.low}
	}
	step := math.Pow(10, math.Floor(math.Log10(span/tickCount)))
	for _, f := range []float64{1, 2, 5, 10} {
		if span/(step*f) <= tickCount {
			step *= f
			break
		}
	}
	var out []float64
	first := math.Ceil(s.low / step)
	for i := range 2 * tickCount { // a step may be less than the distance of such large numbers
		v := (first + float64(i)) * step
		if !(v <= s.high+step*1e-9) {
			break
		}
		out = append(out, v)
	}
	return out
}

// logTicks returns powers of ten, with their twofold and fivefold if there is space.
func (s scale) logTicks() []float64 {
	decades := math.Log10(s.high / s.low)
	factors := []float64{1}
	if decades*3 <= tickCount+1 {
		factors = []float64{1, 2, 5}
	}
	every := max(1, math.Ceil(decades/tickCount))
	var out []float64
	for e := math.Floor(math.Log10(s.low)); e <= math.Log10(s.high)+1; e += every {
		for _, f := range factors {
			if v := f * math.Pow(10, e); v >= s.low*(1-1e-9) && v <= s.high*(1+1e-9) {
				out = append(out, v)
			}
		}
	}
	return out
}
