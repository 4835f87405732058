package queue

import (
	"time"

	"github.com/outboard-run/outboard"
)

// Refuse returns the error with which Do would refuse a request of so many rows at present, nil if
// Do would accept it. A zero deadline stands for none. The refusal is counted: the caller does not
// call Do afterwards.
func (q *Queue) Refuse(rows int, deadline time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refuse(rows, time.Now(), deadline)
}

// refuse returns the error for a request that can't be accepted, and counts it. mu must be held.
func (q *Queue) refuse(rows int, arrived, deadline time.Time) error {
	if len(q.waiting) >= q.opts.Size {
		q.stats.RefusedFull++
		return outboard.Errorf(outboard.Exhausted, "infer", "the queue is full: %d requests wait", len(q.waiting))
	}
	if deadline.IsZero() {
		return nil
	}
	wait := q.estimate.wait(q.rows, q.opts.MaxBatch, q.opts.Instances, q.running)
	wait = q.margin.add(wait) + q.estimate.service(max(rows, 1))
	left := deadline.Sub(arrived)
	if wait <= left {
		return nil
	}
	q.stats.RefusedDeadline++
	return outboard.Errorf(outboard.Exhausted, "infer", "the deadline in %v can't be met: the result is expected in %v",
		left.Round(time.Microsecond), wait.Round(time.Microsecond))
}
