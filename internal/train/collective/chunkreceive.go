package collective

import (
	"encoding/binary"
	"time"
)

// An arrival is a step whose chunks are received.
type arrival struct {
	to        []byte
	combine   bool
	seen      []bool
	optional  []bool // chunks that may be lost; nil: none
	left      int    // chunks that have not arrived
	important int    // those of them that may not be lost
	ended     bool   // all chunks have been sent, and missing ones reported, once
	closed    bool   // the step is over
}

// complete reports whether the step needs no more chunks. Its optional ones have had the time to
// arrive.
func (a *arrival) complete() bool { return a.left == 0 || a.ended && a.important == 0 }

// deliver adds or copies a chunk to its elements, unless it has arrived already or is not expected.
func (s *datagramSum) deliver(c chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.place >= s.places || c.place >= 0 && !s.note(&c) || int64(c.step) >= int64(len(s.steps)) {
		return
	}
	a := s.steps[c.step]
	if a.closed || int64(c.index) >= int64(len(a.seen)) || a.seen[c.index] {
		return
	}
	target := chunkAt(a.to, int(c.index))
	if len(target) != len(c.elements) {
		return
	}
	if a.seen[c.index] = true; a.combine {
		combine(target, c.elements, s.call.Element, Sum)
	} else {
		copy(target, c.elements)
	}
	a.left--
	if len(a.optional) == 0 || !a.optional[c.index] {
		a.important--
	}
	if next := int(c.step) + 1; s.forwards(next) {
		s.queue(sentChunk{next, int(c.index)})
	}
	if a.complete() {
		notify(s.wake)
	}
}

// forwards reports whether a step sends each chunk as soon as the step before it has received it.
func (s *datagramSum) forwards(step int) bool {
	return step < len(s.schedule) && !s.schedule[step].Combine
}

// note records a datagram, and reports whether it is new. s.mu is held.
func (s *datagramSum) note(c *chunk) bool {
	word, bit := int(c.place/64), uint64(1)<<(c.place%64)
	for len(s.got) <= word {
		s.got = append(s.got, 0)
	}
	if s.got[word]&bit != 0 {
		return false
	}
	s.got[word] |= bit
	s.highest = max(s.highest, c.place+1)
	s.arrived++
	s.last = time.Now()
	delay := int32(s.clock() - c.sent)
	if s.first.IsZero() {
		s.first, s.fastest = s.last, delay
	}
	s.fastest, s.least = min(s.fastest, delay), min(s.least, delay)
	return true
}

// missing returns the datagrams of places before an end that have not arrived and were not reported,
// as a report, of at most maxReported.
func (s *datagramSum) missing(end int64) report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := report{arrived: s.arrived, span: s.last.Sub(s.first)}
	if !s.first.IsZero() {
		r.queued = time.Duration(int64(s.fastest)-int64(s.least)) * time.Microsecond
	}
	for ; s.reported < end && len(r.missing) < maxReported; s.reported++ {
		if word := int(s.reported / 64); word >= len(s.got) || s.got[word]>>(s.reported%64)&1 == 0 {
			r.missing = append(r.missing, uint32(s.reported))
		}
	}
	s.first, s.last = time.Time{}, time.Time{}
	r.before = uint32(s.reported)
	return r
}

// A chunkReceiver receives the steps of a call.
type chunkReceiver struct {
	*datagramSum

	path *chunkPath
	// at is the value of highest when the last report was due: by the next one, datagrams of earlier
	// places count as lost.
	at int64
	// late fires when the datagrams before the place end should have arrived, with which the steps until
	// endStep have been sent.
	late    <-chan time.Time
	end     int64
	endStep int
}

// receive receives the steps from the previous rank.
func (s *datagramSum) receive(p *chunkPath) error {
	if err := p.write(s.execution, pathReady, 0, true); err != nil {
		return err
	}
	r := &chunkReceiver{datagramSum: s, path: p}
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for step := 0; step < len(s.steps); {
		if over, err := r.closeStep(step); err != nil {
			return err
		} else if over {
			step++
			continue
		}
		if err := r.wait(tick.C); err != nil {
			return err
		}
	}
	return nil
}

// closeStep ends a step if it is complete, tells the sender, and makes sendable what is still missing
// for the next step.
func (r *chunkReceiver) closeStep(step int) (over bool, err error) {
	a := r.steps[step]
	r.mu.Lock()
	if over = a.complete(); over {
		a.closed = true
		r.queueRest(step + 1)
	}
	lost := uint32(a.left)
	r.mu.Unlock()
	if !over || len(a.seen) == 0 {
		return over, nil
	}
	return true, r.path.write(r.execution, pathDone, uint32(step), true, binary.LittleEndian.AppendUint32(nil, lost))
}

// queueRest makes the chunks of a step sendable that are not yet: the step before it is over. r.mu is
// held.
func (r *chunkReceiver) queueRest(step int) {
	if step < len(r.schedule) && !r.forwards(step) {
		r.queue(sentChunk{step, allChunks})
		return
	}
	for i, seen := range r.steps[step-1].seen {
		if !seen && step < len(r.schedule) {
			r.queue(sentChunk{step, i})
		}
	}
}

// wait processes an event.
func (r *chunkReceiver) wait(tick <-chan time.Time) error {
	select {
	case <-r.wake:
	case m := <-r.path.toReceiver:
		return r.process(m)
	case <-r.late:
		return r.endSteps()
	case <-tick:
		r.mu.Lock()
		before := r.at
		r.at = r.highest
		r.mu.Unlock()
		return r.report(before)
	case <-r.g.Ended():
		return r.g.Err()
	}
	return nil
}

// process processes a message of the previous rank.
func (r *chunkReceiver) process(m pathMessage) error {
	current, err := r.path.check(r.execution, m, len(r.steps))
	if err != nil || !current {
		return err
	}
	if m.kind == pathOptional {
		return r.setOptional(r.steps[m.step], m.payload)
	}
	r.end, r.endStep = int64(number(m.payload)), int(m.step)
	if r.arrivedBefore(r.end) {
		return r.endSteps()
	}
	r.late = time.After(straggling)
	return nil
}

// arrivedBefore reports whether all datagrams before a place have arrived or were reported.
func (r *chunkReceiver) arrivedBefore(end int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for place := r.reported; place < end; place++ {
		if word := int(place / 64); word >= len(r.got) || r.got[word]>>(place%64)&1 == 0 {
			return false
		}
	}
	return true
}

func (r *chunkReceiver) setOptional(a *arrival, bits []byte) error {
	optional, err := r.path.parseOptional(bits, len(a.seen), r.lossOf(len(a.seen), a.combine))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.optional, a.important = optional, 0
	for i, seen := range a.seen {
		if !seen && !optional[i] {
			a.important++
		}
	}
	return nil
}

// endSteps reports the datagrams that are missing of steps that have been sent.
func (r *chunkReceiver) endSteps() error {
	r.late = nil
	if err := r.report(min(r.end, r.places)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.steps[:r.endStep+1] {
		a.ended = true
	}
	return nil
}

// report reports the datagrams before a place that have not arrived.
func (r *chunkReceiver) report(before int64) error {
	for r.reported < before {
		m := r.missing(before)
		if err := r.path.write(r.execution, pathReport, 0, true, m.append(nil)); err != nil {
			return err
		}
	}
	return nil
}
