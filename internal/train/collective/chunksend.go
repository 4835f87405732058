package collective

import (
	"encoding/binary"
	"fmt"
	"time"
)

// A chunkSender sends the steps of a call to the next rank.
type chunkSender struct {
	sum  *datagramSum
	path *chunkPath
	pace pacer

	ready bool // the next rank expects the call
	steps []*sentStep
	sent  int // steps of which all chunks have been sent
	done  int // steps of which the next rank needs nothing more
	fresh []sentChunk
	again []sentChunk // were lost
	log   []sentChunk // by place
	// early is the place before which chunks may be repeated before they are known to be lost.
	early int
	// unended says that chunks were sent since the last pathEnd, which was sent at endedAt and named
	// the steps before ended.
	unended bool
	ended   int
	endedAt time.Time
	// reported is the place before which datagrams have been reported. The rate was measured until the
	// place measured; missing and span are what was reported since then.
	reported, measured, missing int
	span                        time.Duration
	queued                      time.Duration // of the last report
	elements                    []byte        // of the chunk that is sent
	busy                        chan struct{} // closed
}

// A sentStep is a step as it is sent.
type sentStep struct {
	data     []byte
	optional []bool // by chunk; nil: none
	unsent   int    // chunks that have not been sent
	tries    []int8 // datagrams with a chunk
	last     []int  // by chunk: the place of its last datagram
	over     bool   // nothing is missing
}

type sentChunk struct{ step, chunk int }

// chunkBytes is how much memory a call needs at most for each chunk that it sends and receives, with
// all repetitions.
const chunkBytes = 192

// streamed is the place of a chunk that was sent over the stream.
const streamed = -1

func newChunkSender(s *datagramSum, p *chunkPath) *chunkSender {
	c := &chunkSender{sum: s, path: p, steps: make([]*sentStep, len(s.schedule)), elements: make([]byte, 0, chunkSize), busy: make(chan struct{})}
	close(c.busy)
	for i, step := range s.schedule {
		data := s.bytes(step.Send)
		n := chunksOf(len(data))
		c.steps[i] = &sentStep{data: data, unsent: n, tries: make([]int8, n), last: make([]int, n)}
		if n == 0 { // It is over for both ranks.
			c.steps[i].over = true
			c.done++
		}
	}
	return c
}

// run sends the steps until nothing is missing.
func (c *chunkSender) run() error {
	for c.done < len(c.steps) {
		sent := false
		if c.ready {
			var err error
			if sent, err = c.sendNext(); err != nil {
				return err
			}
		}
		if err := c.wait(!sent); err != nil {
			return err
		}
	}
	return nil
}

// wait processes an event. It waits for one if nothing can be sent.
func (c *chunkSender) wait(idle bool) error {
	busy, queued := c.busy, c.sum.queued
	var due <-chan time.Time
	if idle {
		busy = nil
		if c.unended {
			due = time.After(time.Until(c.endedAt.Add(reportInterval)))
		}
	}
	if !c.ready {
		queued = nil
	}
	select {
	case m := <-c.path.toSender:
		return c.process(m)
	case <-queued:
		return c.open(c.sum.takeSendable())
	case <-c.sum.g.Ended():
		return c.sum.g.Err()
	case <-due:
	case <-busy:
	}
	return nil
}

// process processes a message of the next rank.
func (c *chunkSender) process(m pathMessage) error {
	current, err := c.path.check(c.sum.execution, m, len(c.steps))
	if err != nil || !current {
		return err
	}
	switch m.kind {
	case pathReady:
		if c.ready {
			return fmt.Errorf("rank %d expects call %d twice", c.path.g.name(c.path.rank), m.number)
		}
		c.ready = true
		return c.path.writeAnnounced(c.sum.execution)
	case pathDone:
		return c.endStep(int(m.step), int(number(m.payload)))
	}
	r, err := parseReport(m.payload)
	if err != nil {
		return err
	}
	return c.processReport(&r)
}

// open queues chunks that may be sent.
func (c *chunkSender) open(chunks []sentChunk) error {
	for _, next := range chunks {
		if next.chunk != allChunks {
			c.fresh = append(c.fresh, next)
		} else if err := c.openStep(next.step); err != nil {
			return err
		}
	}
	return nil
}

// openStep queues all chunks of a step, the most important ones first.
func (c *chunkSender) openStep(i int) error {
	s := c.steps[i]
	if s.over {
		return nil
	}
	order := c.sum.orderOf(s.data)
	for _, chunk := range order {
		c.fresh = append(c.fresh, sentChunk{i, chunk})
	}
	c.sum.g.offered.Add(uint64(len(order)))
	important := len(order) - c.sum.lossOf(len(order), true)
	if important == len(order) {
		return nil
	}
	s.optional = make([]bool, len(order))
	for _, chunk := range order[important:] {
		s.optional[chunk] = true
	}
	return c.path.write(c.sum.execution, pathOptional, uint32(i), true, bitsOf(s.optional))
}

// endStep notes that the next rank needs nothing more of a step.
func (c *chunkSender) endStep(i, lost int) error {
	s := c.steps[i]
	if s.over || s.unsent > 0 || lost > len(s.last) {
		return fmt.Errorf("rank %d has ended step %d of call %d, which it does not wait for, or lost %d chunks", c.path.g.name(c.path.rank), i, c.sum.number, lost)
	}
	s.over = true
	c.done++
	c.sum.g.dropped.Add(uint64(lost))
	c.measure(0)
	return nil
}

// processReport queues the chunks of lost datagrams, and measures the rate.
func (c *chunkSender) processReport(r *report) error {
	if int(r.before) > len(c.log) || int(r.before) < c.reported || int(r.arrived) > len(c.log) {
		return fmt.Errorf("rank %d reported %d of %d datagrams", c.path.g.name(c.path.rank), r.before, len(c.log))
	}
	// A datagram that is reported again would be queued again, without an end.
	next := uint32(c.reported)
	for _, place := range r.missing {
		if place < next || place >= r.before {
			return fmt.Errorf("rank %d reported datagram %d, of those from %d to %d", c.path.g.name(c.path.rank), place, next, r.before)
		}
		next = place + 1
	}
	c.reported = int(r.before)
	c.missing += len(r.missing)
	c.queued = r.queued
	c.span += r.span
	c.measure(measureTime)
	if r.arrived == 0 && c.reported >= leastSent {
		c.path.dead = true // Datagrams would cost more than they save.
	}
	for _, place := range r.missing {
		c.path.lossy = true
		s, sent := c.steps[c.log[place].step], c.log[place]
		// A chunk that was sent again since then is missing only if that datagram is.
		if s.needs(sent.chunk) && s.last[sent.chunk] == int(place) {
			c.again = append(c.again, sent)
			c.sum.g.repeated.Add(1)
		}
	}
	return nil
}

// sendNext sends a chunk: one that was lost before one that was not sent, and that before one that
// may have been lost. It returns false if there is none.
func (c *chunkSender) sendNext() (bool, error) {
	for len(c.again) > 0 {
		next := c.again[0]
		c.again = c.again[1:]
		if !c.steps[next.step].over {
			return true, c.send(next)
		}
	}
	if len(c.fresh) > 0 {
		next := c.fresh[0]
		c.fresh = c.fresh[1:]
		c.steps[next.step].unsent--
		return true, c.send(next)
	}
	if ended, err := c.sendEnd(); ended || err != nil {
		return true, err
	}
	return c.sendEarly()
}

// sendEnd tells the next rank which steps have been sent, so that it reports the last chunks as well:
// at once if another step has, else not more often than the rank reports.
func (c *chunkSender) sendEnd() (bool, error) {
	for c.sent < len(c.steps) && c.steps[c.sent].unsent == 0 {
		c.sent++
	}
	if !c.unended || c.sent == 0 || c.sent == c.ended && time.Since(c.endedAt) < reportInterval {
		return false, nil
	}
	c.unended, c.ended, c.endedAt = false, c.sent, time.Now()
	return true, c.path.write(c.sum.execution, pathEnd, uint32(c.sent-1), true, binary.LittleEndian.AppendUint32(nil, uint32(len(c.log))))
}

// sendEarly repeats an important chunk that may be on its way, once, while there is nothing else to
// send, the last one first: the report that it is lost would arrive a round trip later. It does so on
// paths that lose datagrams.
func (c *chunkSender) sendEarly() (bool, error) {
	if !c.path.lossy || c.path.dead {
		return false, nil
	}
	for c.early > c.reported {
		c.early--
		sent := c.log[c.early]
		if s := c.steps[sent.step]; s.needs(sent.chunk) && s.last[sent.chunk] == c.early && s.tries[sent.chunk] == 1 {
			return true, c.send(sent)
		}
	}
	return false, nil
}

// needs reports whether a chunk has to arrive, as far as is known.
func (s *sentStep) needs(chunk int) bool {
	return !s.over && (len(s.optional) == 0 || !s.optional[chunk])
}

// send sends a chunk, over the stream if datagrams do not arrive.
func (c *chunkSender) send(next sentChunk) error {
	s, x := c.steps[next.step], c.sum.execution
	if s.tries[next.chunk] >= maxRepeats {
		c.path.dead = true
	}
	c.unended = true
	elements := c.sum.copyChunk(c.elements[:0], s.data, next.chunk)
	if c.path.dead {
		s.last[next.chunk] = streamed
		return c.path.write(x, pathChunk, uint32(next.step), false, binary.LittleEndian.AppendUint32(nil, uint32(next.chunk)), elements)
	}
	c.pace.wait(c.path.rate, c.sum.g.Ended())
	d := chunk{number: x.number, step: uint32(next.step), index: uint32(next.chunk), place: int64(len(c.log)), sent: c.sum.clock(), elements: elements}
	s.tries[next.chunk]++
	s.last[next.chunk] = len(c.log)
	if c.log = append(c.log, next); s.tries[next.chunk] == 1 {
		c.early = len(c.log)
	}
	return c.path.sendChunk(&d)
}

func (p *chunkPath) sendChunk(c *chunk) error {
	if err := p.Path.Send(c.append(p.datagram[:0])); err != nil {
		return p.g.peers[p.rank].lost(err)
	}
	return nil
}

// measure adapts the rate to what was reported, if that took long enough.
func (c *chunkSender) measure(least time.Duration) {
	sent := c.reported - c.measured
	if sent < leastSent || c.span < least {
		return
	}
	c.path.adapt(sent, c.missing, c.span, c.queued)
	c.measured, c.missing, c.span = c.reported, 0, 0
}
