package network

import (
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// Sample is the result of one probe of a peer.
type Sample struct {
	// RTTs are the round trips of small messages.
	RTTs []time.Duration
	// Forward and Backward are the rates of a burst in each direction, in bytes/s; 0: not
	// measured.
	Forward, Backward float64
	// Sent counts the packets that were sent, Resent those that were sent again.
	Sent, Resent uint64
	// Bytes is the cost of the probe in both directions.
	Bytes int
}

// window is the number of a peer's last probes that an estimate takes into account.
const window = 16

// estimate is the estimate of the path to one peer.
type estimate struct {
	rtts              []time.Duration // of the last probes, medians
	minRTT            time.Duration
	forward, backward []float64
	sent, resent      []uint64
	samples           int
	measured          time.Time
}

// add takes a probe into account.
func (e *estimate) add(s *Sample, now time.Time) {
	if len(s.RTTs) == 0 {
		return
	}
	rtts := slices.Sorted(slices.Values(s.RTTs))
	e.rtts = push(e.rtts, rtts[len(rtts)/2])
	if e.minRTT == 0 || rtts[0] < e.minRTT || e.samples%(4*window) == 0 {
		e.minRTT = rtts[0] // measured anew from time to time: routes change
	}
	if s.Forward > 0 {
		e.forward = push(e.forward, s.Forward)
	}
	if s.Backward > 0 {
		e.backward = push(e.backward, s.Backward)
	}
	e.sent, e.resent = push(e.sent, s.Sent), push(e.resent, s.Resent)
	e.samples++
	e.measured = now
}

func push[T any](values []T, v T) []T {
	if len(values) == window {
		values = slices.Delete(values, 0, 1)
	}
	return append(values, v)
}

// link returns the estimate for people and programs.
func (e *estimate) link(from, to outboard.NodeID) client.Link {
	l := client.Link{From: from, To: to, MinRTT: e.minRTT, Samples: min(e.samples, window), Measured: e.measured.UTC()}
	l.RTT, l.RTTSpread = quartiles(e.rtts, 2)
	// A burst is never faster than the path, and often slower: a high quantile is closer.
	l.Forward, l.ForwardSpread = quartiles(e.forward, 3)
	l.Backward, l.BackwardSpread = quartiles(e.backward, 3)
	if sent := sum(e.sent); sent > 0 {
		l.Loss = min(1, float64(sum(e.resent))/float64(sent))
	}
	return l
}

func sum(values []uint64) (total uint64) {
	for _, v := range values {
		total += v
	}
	return total
}

// quartiles returns the q-th quartile of values, and the distance from the first to the third.
func quartiles[T ~int64 | ~float64](values []T, q int) (value, spread T) {
	n := len(values)
	if n == 0 {
		return value, spread
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(q int) T { return sorted[(n-1)*q/4] }
	return at(q), at(3) - at(1)
}
