package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// durationRange is the value of --rtt: a time, or two with ".." between them.
type durationRange struct {
	low, high time.Duration
	set       bool
}

func (r *durationRange) isRange() bool { return r.high > r.low }

// Set, String and Type implement pflag.Value.
func (r *durationRange) Set(text string) error {
	low, high, isRange := strings.Cut(text, "..")
	var err error
	if r.low, err = time.ParseDuration(strings.ReplaceAll(low, "µ", "u")); err == nil {
		r.high = r.low
		if isRange {
			r.high, err = time.ParseDuration(high)
		}
	}
	r.set = true
	switch {
	case err != nil:
		return fmt.Errorf("want a time such as 200us, or a range such as 5us..5ms")
	case r.low < 0 || r.high < r.low || r.high > time.Minute || isRange && r.low == 0:
		return fmt.Errorf("want times from 1ns to 1m, the smaller one first")
	}
	return nil
}

func (r *durationRange) String() string {
	switch {
	case !r.set:
		return ""
	case r.isRange():
		return r.low.String() + ".." + r.high.String()
	}
	return r.low.String()
}

// Type returns the name of the value in help texts.
func (r *durationRange) Type() string { return "time" }

// values returns n times, evenly spaced by their logarithms, or the single one.
func (r *durationRange) values(n int) []time.Duration {
	var out []time.Duration
	for _, v := range spaced(float64(r.low), float64(r.high), n) {
		out = append(out, time.Duration(v))
	}
	return out
}

// bandwidthRange is the value of --bandwidth, in bits per second; 0 is unlimited.
type bandwidthRange struct {
	low, high float64
	set       bool
}

func (r *bandwidthRange) isRange() bool { return r.high > r.low }

var bandwidthUnits = []struct {
	names []string
	size  float64
}{
	{[]string{"Tbit/s", "Tbit", "Tbps"}, 1e12},
	{[]string{"Gbit/s", "Gbit", "Gbps"}, 1e9},
	{[]string{"Mbit/s", "Mbit", "Mbps"}, 1e6},
	{[]string{"kbit/s", "kbit", "kbps"}, 1e3},
}

// Set, String and Type implement pflag.Value.
func (r *bandwidthRange) Set(text string) error {
	low, high, isRange := strings.Cut(text, "..")
	var err error
	if r.low, err = parseBandwidth(low); err == nil {
		r.high = r.low
		if isRange {
			r.high, err = parseBandwidth(high)
		}
	}
	r.set = true
	if err == nil && (r.high < r.low || isRange && r.low == 0) {
		err = fmt.Errorf("want two bandwidths, the smaller one first; unlimited stands alone")
	}
	return err
}

func parseBandwidth(text string) (float64, error) {
	if text == "unlimited" {
		return 0, nil
	}
	for _, u := range bandwidthUnits {
		for _, name := range u.names {
			if number, ok := strings.CutSuffix(text, name); ok {
				if v, err := strconv.ParseFloat(number, 64); err == nil && v*u.size >= 1e4 && v*u.size <= 1e15 {
					return v * u.size, nil
				}
			}
		}
	}
	return 0, fmt.Errorf("want a bandwidth such as 100Mbit or 10Gbit, a range such as 100Mbit..400Gbit, from 10kbit to 1000Tbit, or unlimited")
}

func (r *bandwidthRange) String() string {
	switch {
	case !r.set:
		return ""
	case r.isRange():
		return bitRate(r.low) + ".." + bitRate(r.high)
	}
	return bitRate(r.low)
}

// Type returns the name of the value in help texts.
func (r *bandwidthRange) Type() string { return "bandwidth" }

func (r *bandwidthRange) values(n int) []float64 { return spaced(r.low, r.high, n) }

// bitRate formats bits per second with three digits; 0 is unlimited.
func bitRate(v float64) string {
	if v == 0 {
		return "unlimited"
	}
	for _, u := range bandwidthUnits {
		if v >= u.size*0.9995 {
			return threeDigits(v/u.size) + " " + u.names[0]
		}
	}
	return threeDigits(v) + " bit/s"
}

// seconds formats a time with three digits.
func seconds(v float64) string {
	for _, u := range []struct {
		name string
		size float64
	}{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}} {
		if v >= u.size*0.9995 {
			return threeDigits(v/u.size) + " " + u.name
		}
	}
	return "0"
}

func threeDigits(v float64) string {
	digits := max(0, 2-int(math.Floor(math.Log10(max(v, 1)))))
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// times formats a slowdown.
func times(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) + "x" }

// spaced returns n values from low to high, evenly spaced by their logarithms, or one.
func spaced(low, high float64, n int) []float64 {
	if high <= low {
		return []float64{low}
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = low * math.Pow(high/low, float64(i)/float64(n-1))
	}
	return out
}

// grid returns links for all combinations of round-trip times and bandwidths.
func grid(rtts []time.Duration, bandwidths []float64) []overhead.Link {
	var out []overhead.Link
	for _, rtt := range rtts {
		for _, b := range bandwidths {
			out = append(out, overhead.Link{RTT: rtt, Up: b, Down: b})
		}
	}
	return out
}
