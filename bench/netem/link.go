package netem

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// A Link describes a network path for Emulate. The zero value adds no delay.
type Link struct {
	// RTT is the propagation delay there and back.
	RTT time.Duration
	// BitsPerSecond is the bandwidth of each direction; 0 is unlimited.
	BitsPerSecond float64
	// Jitter is the greatest delay of a delivery in addition to RTT/2. Bytes never overtake each
	// other.
	Jitter time.Duration
}

// ParseLink reads a link such as "rtt=10ms,bw=1Gbps,jitter=1ms". Every part is
// optional.
func ParseLink(text string) (Link, error) {
	var l Link
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		var err error
		switch name {
		case "rtt":
			l.RTT, err = time.ParseDuration(value)
		case "jitter":
			l.Jitter, err = time.ParseDuration(value)
		case "bw":
			l.BitsPerSecond, err = parseRate(value)
		default:
			err = fmt.Errorf("unknown part %q", name)
		}
		if err == nil && (l.RTT < 0 || l.Jitter < 0) {
			err = fmt.Errorf("%s is negative", name)
		}
		if err != nil {
			return Link{}, outboard.Errorf(outboard.Invalid, "link "+text, "%w: want parts such as rtt=10ms, bw=1Gbps, jitter=1ms", err)
		}
	}
	return l, nil
}

var rateUnits = []struct {
	suffix string
	size   float64
}{{"Gbps", 1e9}, {"Mbps", 1e6}, {"kbps", 1e3}, {"bps", 1}}

func parseRate(text string) (float64, error) {
	for _, u := range rateUnits {
		if number, ok := strings.CutSuffix(text, u.suffix); ok {
			v, err := strconv.ParseFloat(number, 64)
			if err == nil && !(v > 0 && v*u.size <= 1e15) {
				err = fmt.Errorf("rate %q is out of range", text)
			}
			return v * u.size, err
		}
	}
	return 0, fmt.Errorf("rate %q has no unit", text)
}

// String returns the text that ParseLink reads.
func (l Link) String() string {
	text := "rtt=" + l.RTT.String()
	if l.BitsPerSecond > 0 {
		unit := rateUnits[len(rateUnits)-1]
		for _, u := range rateUnits {
			if l.BitsPerSecond >= u.size {
				unit = u
				break
			}
		}
		text += ",bw=" + strconv.FormatFloat(l.BitsPerSecond/unit.size, 'g', -1, 64) + unit.suffix
	}
	if l.Jitter > 0 {
		text += ",jitter=" + l.Jitter.String()
	}
	return text
}
