package fabric

import (
	"math/rand/v2"
	"time"
)

// A backoff says how long to wait between attempts to connect.
type backoff struct{ first, longest time.Duration }

// waitGrows is by how much each wait is longer than the one before, as with grpc-go.
const waitGrows = 1.6

// elsewhere is grpc-go's backoff.
func elsewhere() backoff { return backoff{first: time.Second, longest: 2 * time.Minute} }

// onThisMachine is for targets on this machine, such as its node: an attempt costs some microseconds,
// and after the target's restart programs should not be without it for long.
func onThisMachine() backoff {
	return backoff{first: 10 * time.Millisecond, longest: 200 * time.Millisecond}
}

// wait returns the wait after so many failed attempts. It varies, so that the programs of a target do
// not return to it all at once.
func (b backoff) wait(failures int) time.Duration {
	wait := float64(b.first)
	for range failures - 1 {
		wait = min(wait*waitGrows, float64(b.longest))
		if wait == float64(b.longest) {
			break
		}
	}
	jitter := 0.8 + 0.4*rand.Float64() //nolint:gosec // it spreads attempts, it hides nothing
	return time.Duration(wait * jitter)
}
