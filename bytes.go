package outboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size in bytes. Its text form is a number with a binary (KiB, MiB,
// GiB, TiB) or decimal (kB, MB, GB, TB) unit, or a plain number.
type Bytes uint64

var byteUnits = []struct {
	suffix string
	size   float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"PiB", 1 << 50},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"K", 1 << 10},
	{"M", 1 << 20},
	{"G", 1 << 30},
	{"T", 1 << 40},
	{"B", 1},
}

// ParseBytes reads a size such as "2GiB", "512M" or "1048576".
func ParseBytes(s string) (Bytes, error) {
	number, unit := strings.TrimSpace(s), 1.0
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	if n, err := strconv.ParseUint(number, 10, 64); err == nil && unit == 1 {
		return Bytes(n), nil
	}
	n, err := strconv.ParseFloat(number, 64)
	if err == nil && n*unit == math.MaxUint64 {
		// The largest sizes print as 16384PiB.
		return math.MaxUint64, nil
	}
	if err != nil || !(n >= 0) || n*unit > math.MaxUint64 {
		return 0, fmt.Errorf("size %q: want a number with a unit, such as 512MiB or 2GiB", s)
	}
	return Bytes(n * unit), nil
}

// String gives the size in the largest binary unit that keeps it above one.
func (b Bytes) String() string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(b), 0
	// What would round to 1024 of one unit is 1 of the next.
	for math.Round(v*10) >= 10240 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) + units[i]
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bytes) UnmarshalText(text []byte) error {
	v, err := ParseBytes(string(text))
	*b = v
	return err
}

// UnmarshalJSON takes a number, as a size is written, or a string with a unit.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	return b.UnmarshalText([]byte(strings.Trim(string(text), `"`)))
}

// Set reads a command-line flag.
func (b *Bytes) Set(s string) error { return b.UnmarshalText([]byte(s)) }

// Type names the flag's value in help texts.
func (b *Bytes) Type() string { return "size" }
