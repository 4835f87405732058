package overhead

import "github.com/outboard-run/outboard/internal/cost"

// A token bucket (tc-tbf(8)) lets bytes pass at once as long as it has tokens, which accrue at the
// link's rate. The model is the generic cell rate algorithm (ITU-T I.371): a resource serves the
// bytes at that rate, and they may leave earlier than their service ends, by the time of a full
// bucket.

// addBucket adds to p the lane of a bucket of burst bytes; perByte is the link's time for a byte,
// in seconds. A bucket of 0 bytes delays nothing.
func addBucket(p *cost.Profile, burst int64, perByte float64) {
	if burst == 0 {
		perByte = 0
	}
	p.PerUnit = append(p.PerUnit, min(1e-3, perByte))
	p.Latency = append(p.Latency, -cost.Time(float64(burst)*min(1e-3, perByte)*float64(cost.Second)))
}

// takeTokens delays the link until the bucket has tokens for a message of that many bytes, which
// arrives at the point there.
func (d *direction) takeTokens(e *cost.Evaluator, there cost.Point, bytes int64) {
	if d.bucket == 0 {
		return
	}
	e.Add(cost.Task{On: d.bucket, After: [2]cost.Point{there}, Units: bytes, Done: d.tokens})
	e.Wait(d.on, d.tokens)
}
