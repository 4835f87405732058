package cost

import (
	"fmt"
	"math"
	"time"
)

// Time is a moment or a duration, in picoseconds.
type Time int64

// Units of Time.
const (
	Nanosecond  Time = 1000
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Of converts a duration. Durations beyond the range of Time become its maximum.
func Of(d time.Duration) Time {
	if int64(d) > math.MaxInt64/int64(Nanosecond) {
		return math.MaxInt64
	}
	return Time(d) * Nanosecond
}

// Duration converts t, rounded to the nanosecond below.
func (t Time) Duration() time.Duration { return time.Duration(t / Nanosecond) }

// Seconds returns t in seconds.
func (t Time) Seconds() float64 { return float64(t) / float64(Second) }

// Resource identifies a resource of an Evaluator.
type Resource int32

// Profile says how a resource behaves in each setting. A slice has one element for each
// setting, or one for all of them, or none for the default.
type Profile struct {
	// Latency is added after the service of a task; default 0. A negative latency is a lead: tasks
	// that depend on this one may begin that long before its service ends.
	Latency []Time
	// PerUnit is how many seconds one unit takes, the reciprocal of the rate; default 0: units
	// take no time. At most 1 ms.
	PerUnit []float64
	// Slowdown is a factor on the cost of each task; default 1. At most 256.
	Slowdown []float64
}

// Rate returns the PerUnit of a bandwidth in bits per second when units are bytes. 0 means an
// infinite bandwidth.
func Rate(bitsPerSecond float64) float64 {
	if bitsPerSecond <= 0 {
		return 0
	}
	return 8 / bitsPerSecond
}

// Fixed-point representations: PerUnit has perUnitBits below the picosecond, Slowdown
// slowdownBits below 1. maxUnits and maxCost keep their products within an int64.
const (
	perUnitBits  = 8
	slowdownBits = 12

	perUnitRound  = 1<<perUnitBits - 1
	slowdownRound = 1<<slowdownBits - 1

	maxUnits         = 1 << 22 // times 1 ms: 2^30 ps and perUnitBits, 2^60
	maxCost     Time = 1 << 40 // times 256: 2^8 and slowdownBits, 2^60
	maxTime          = 1 << 62
	maxLatency       = Second * 3600
	mostPerUnit      = 1e-3
	mostSlow         = 256
)

// profile is a Profile in fixed point, with one element for each lane.
type profile struct {
	latency, perUnit, slowdown          []int64
	maxLatency, maxPerUnit, maxSlowdown float64
	// costPart and unitPart are the most that one step of the evaluation serves: powers of two,
	// whose products with the fixed-point factors are whole and within an int64.
	costPart Time
	unitPart int64
	// plain says that all slowdowns are 1 and all units free.
	plain bool
	slot  Point
}

func (p Profile) compile(lanes int) (profile, error) {
	latency, err1 := spread("latency", p.Latency, lanes, 0, [2]float64{-float64(maxLatency), float64(maxLatency)}, 1)
	perUnit, err2 := spread("time per unit", p.PerUnit, lanes, 0, [2]float64{0, mostPerUnit}, float64(Second)*(1<<perUnitBits))
	slowdown, err3 := spread("slowdown", p.Slowdown, lanes, 1, [2]float64{0, mostSlow}, 1<<slowdownBits)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return profile{}, err
		}
	}
	made := profile{latency: latency, perUnit: perUnit, slowdown: slowdown, plain: true}
	for i := range lanes {
		made.maxLatency = max(made.maxLatency, float64(latency[i]))
		made.maxPerUnit = max(made.maxPerUnit, float64(perUnit[i])/(1<<perUnitBits))
		made.maxSlowdown = max(made.maxSlowdown, float64(slowdown[i])/(1<<slowdownBits))
		made.plain = made.plain && perUnit[i] == 0 && slowdown[i] == 1<<slowdownBits
	}
	made.costPart, made.unitPart = maxCost, maxUnits
	for float64(made.costPart)*made.maxSlowdown*(1<<slowdownBits) < 1<<60 && made.costPart < 1<<60 {
		made.costPart *= 2
	}
	for float64(made.unitPart)*made.maxPerUnit*(1<<perUnitBits) < 1<<60 && made.unitPart < 1<<60 {
		made.unitPart *= 2
	}
	return made, nil
}

// spread scales values, which are within bounds, and repeats them for all lanes.
func spread[T Time | float64](subject string, values []T, lanes int, missing float64, bounds [2]float64, scale float64) ([]int64, error) {
	if n := len(values); n > 1 && n != lanes {
		return nil, fmt.Errorf("cost: %d values of %s for %d settings", n, subject, lanes)
	}
	out := make([]int64, lanes)
	for i := range out {
		v := missing
		switch len(values) {
		case 0:
		case 1:
			v = float64(values[0])
		default:
			v = float64(values[i])
		}
		if !(v >= bounds[0] && v <= bounds[1]) {
			return nil, fmt.Errorf("cost: a %s of %g: want %g to %g", subject, v, bounds[0], bounds[1])
		}
		out[i] = int64(math.Floor(v*scale + 0.5))
	}
	return out, nil
}
