package queue

import (
	"time"

	"github.com/outboard-run/outboard"
)

// Refuse returns the error with which Do would refuse a client's request of so many rows at present,
// nil if Do would accept it. A zero deadline stands for none. The refusal is counted: the caller does not
// call Do afterwards.
func (q *Queue) Refuse(client string, rows int, deadline time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refuse(client, rows, time.Now(), deadline)
}

// refuse returns the error for a request that can't be accepted, and counts it. mu must be held.
func (q *Queue) refuse(client string, rows int, arrived, deadline time.Time) error {
	if len(q.waiting) >= q.capacity(client) {
		q.stats.RefusedFull++
		return outboard.Errorf(outboard.Exhausted, "infer", "the queue is full: %d requests wait", len(q.waiting))
	}
	if deadline.IsZero() {
		return nil
	}
	wait := q.estimate.wait(q.rowsBefore(client), q.opts.MaxBatch, q.opts.Instances, q.running)
	wait = q.margin.add(wait) + q.estimate.service(max(rows, 1))
	left := deadline.Sub(arrived)
	if wait <= left {
		return nil
	}
	q.stats.RefusedDeadline++
	return outboard.Errorf(outboard.Exhausted, "infer", "the deadline in %v can't be met: the result is expected in %v",
		left.Round(time.Microsecond), wait.Round(time.Microsecond))
}

// reservedShare is the inverse share of the places in the queue that a named client with as many
// requests or more can't fill: another client finds one.
const reservedShare = 8

// capacity returns the number of waiting requests from which on those of a client are refused.
func (q *Queue) capacity(client string) int {
	if reserved := q.opts.Size / reservedShare; client != "" && q.turns.Waiting(client) >= reserved {
		return q.opts.Size - reserved
	}
	return q.opts.Size
}

// rowsBefore returns the rows that are executed before a client's next request.
func (q *Queue) rowsBefore(client string) int {
	if q.turns.IsSole(client) {
		return q.rows
	}
	rows := 0
	for _, it := range q.waiting {
		if q.turns.Precedes(&it.turn, client) {
			rows += max(it.Rows, 1)
		}
	}
	return rows
}
