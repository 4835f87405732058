package queue

import (
	"context"
	"errors"
	"maps"
	"math/bits"
	"time"
)

// Stats count the requests of a queue. Every request is eventually counted in exactly one of
// Succeeded, Failed, Cancelled, Expired, RefusedFull and RefusedDeadline.
type Stats struct {
	Succeeded, Failed uint64
	// Cancelled counts requests whose client disconnected, Expired those whose deadline passed
	// while they waited. RefusedFull and RefusedDeadline count requests that were refused on
	// arrival.
	Cancelled, Expired           uint64
	RefusedFull, RefusedDeadline uint64
	// Rows counts the rows of successful requests, Executions the batches.
	Rows, Executions uint64
	// The times are sums over successful requests; FailedTime is the sum over failed ones. Compute
	// does not include Copies.
	Total, Queue, Compute, FailedTime time.Duration
	Copies
	// Batches are the executions by their number of rows.
	Batches map[int]BatchStats
	Last    time.Time
	// Waiting and Running are the present numbers of waiting requests and of batches being
	// executed.
	Waiting, Running int
	// Expected is the expected wait of a request that arrives now, and Service its execution time.
	Expected, Service time.Duration
}

// BatchStats count the executions of batches of one size.
type BatchStats struct {
	Count   uint64
	Compute time.Duration
	Copies
}

func (c *Copies) add(more Copies) {
	c.In += more.In
	c.Out += more.Out
}

// maxBatchSizes bounds the number of sizes that are counted separately.
const maxBatchSizes = 1024

// record counts a batch that was executed within took, of which copies is a part. mu must be held.
func (q *Queue) record(batch []*item, rows int, took time.Duration, copies Copies) {
	s := &q.stats
	compute := took - copies.In - copies.Out
	s.Executions++
	s.Last = time.Now()
	if b, ok := s.Batches[rows]; ok || len(s.Batches) < maxBatchSizes {
		b.Count++
		b.Compute += compute
		b.add(copies)
		s.Batches[rows] = b
	}
	failed := false
	for _, it := range batch {
		total := it.times.Queue + took
		switch {
		case it.err == nil:
			s.Succeeded++
			s.Rows += uint64(max(it.Rows, 1))
			q.margin.met()
			s.Total, s.Queue, s.Compute = s.Total+total, s.Queue+it.times.Queue, s.Compute+compute
			s.add(copies)
		case it.ctx.Err() != nil:
			failed = true
			s.Cancelled++
			if errors.Is(it.ctx.Err(), context.DeadlineExceeded) {
				q.margin.missed(it.arrived)
			}
		default:
			failed = true
			s.Failed++
			s.FailedTime += total
		}
	}
	if !failed {
		q.estimate.add(rows, took)
	}
}

// Stats returns the counts.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Batches = maps.Clone(s.Batches)
	s.Waiting, s.Running = len(q.waiting), q.running
	s.Expected = q.estimate.wait(q.rows, q.opts.MaxBatch, q.opts.Instances, q.running)
	s.Service = q.estimate.service(1)
	return s
}

// Expect returns the number of waiting requests, and the expected wait and execution time of a
// request that arrives now.
func (q *Queue) Expect() (waiting int, wait, service time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting), q.estimate.wait(q.rows, q.opts.MaxBatch, q.opts.Instances, q.running), q.estimate.service(1)
}

// An estimate predicts execution times from measured ones: a moving average for each power of two
// of rows.
type estimate struct {
	times [32]time.Duration // by bits.Len(rows); 0: unknown
}

// weight is the inverse weight of a new measurement.
const weight = 8

func (e *estimate) add(rows int, took time.Duration) {
	at := &e.times[min(bits.Len(uint(rows)), len(e.times)-1)]
	if *at == 0 {
		*at = took
		return
	}
	*at += (took - *at) / weight
}

// service predicts the execution time of a batch. It returns 0 before the first measurement.
func (e *estimate) service(rows int) time.Duration {
	at := min(bits.Len(uint(max(rows, 1))), len(e.times)-1)
	for d := range e.times {
		// Smaller batches take less time, larger ones at most proportionally more: the nearest
		// known time serves.
		if i := at - d; i >= 0 && e.times[i] > 0 {
			return e.times[i]
		}
		if i := at + d; i < len(e.times) && e.times[i] > 0 {
			return e.times[i]
		}
	}
	return 0
}

// wait predicts how long a request waits behind others.
func (e *estimate) wait(rows, most, instances, running int) time.Duration {
	if rows == 0 && running < instances {
		return 0
	}
	batches := (rows + most - 1) / most
	size := min(max(rows, 1), most)
	// Half of the execution of the current batch remains on average.
	return (e.service(size)*time.Duration(batches)*2 + e.service(size)) / 2 / time.Duration(instances)
}

// rowsWithin returns the most rows, at most limit and at least 1, whose execution is expected to
// take no longer than left.
func (e *estimate) rowsWithin(left time.Duration, limit int) int {
	most := 1
	for rows := 1; rows <= limit; rows *= 2 {
		known := e.times[min(bits.Len(uint(rows)), len(e.times)-1)]
		if known > left {
			return most
		}
		most = rows
		if known == 0 {
			return most // the next size is tried once this one is known
		}
	}
	return limit
}

// A margin is the factor by which expected waits are multiplied before they are compared with
// deadlines. An accepted request that misses its deadline raises the factor, one that meets it
// lowers the factor a little (a feedback loop): engines are at times slower than their average, and
// a client that is refused at once can try another node.
type margin struct {
	excess float64 // the factor above leastMargin
	raised time.Time
}

// The factor is between leastMargin and leastMargin+mostExcess. One missed deadline weighs as much
// as 1,000 met ones: far fewer than one per cent of the accepted requests may miss theirs.
const (
	leastMargin = 1.25
	mostExcess  = 3
	missStep    = 0.25
	metStep     = missStep / 1000
)

func (m *margin) add(wait time.Duration) time.Duration {
	return time.Duration(float64(wait) * (leastMargin + m.excess))
}

// missed raises the factor, once for all requests that arrived before it was last raised.
func (m *margin) missed(arrived time.Time) {
	if arrived.After(m.raised) {
		m.excess, m.raised = min(m.excess+missStep, mostExcess), time.Now()
	}
}

func (m *margin) met() { m.excess = max(m.excess-metStep, 0) }
