package tiers

import (
	"fmt"
	"strings"

	"github.com/outboard-run/outboard"
)

// Variable names the limits of a rank in its environment, as Limits.String writes them.
const Variable = "OUTBOARD_OFFLOAD"

// Limits are the bytes that a rank's saved tensors may occupy in each tier.
type Limits [tiers]int64

// maxLimit bounds one limit in bytes.
const maxLimit = 1 << 44

// ParseLimits reads limits such as "device=512MiB,host=2GiB,disk=20GiB"; host and disk are 0 if
// they are left out. "" gives nil: no limits.
func ParseLimits(text string) (*Limits, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no limits are no error
	}
	var l Limits
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		tier, ok := tierOf(strings.TrimSpace(name))
		size, err := outboard.ParseBytes(value)
		if !ok || seen[tier.String()] || err != nil || size > maxLimit {
			return nil, outboard.Errorf(outboard.Invalid, "", "%.100q: want device=SIZE,host=SIZE,disk=SIZE, such as device=512MiB,disk=20GiB", text)
		}
		seen[tier.String()], l[tier] = true, int64(size)
	}
	if !seen[Device.String()] || l[Host]+l[Disk] == 0 {
		return nil, outboard.Errorf(outboard.Invalid, "", "%.100q: want the device's SIZE, and that of the host or the disk", text)
	}
	return &l, nil
}

func tierOf(name string) (Tier, bool) {
	for tier := range tiers {
		if tier.String() == name {
			return tier, true
		}
	}
	return Device, false
}

// String returns the limits in bytes, as ParseLimits and the Python package read them.
func (l *Limits) String() string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("device=%d,host=%d,disk=%d", l[Device], l[Host], l[Disk])
}
