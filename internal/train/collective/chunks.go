package collective

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"
)

// A datagramSum is an all-reduce by datagrams. One goroutine sends the steps to the next rank and one
// receives those of the previous rank. A step sends what the one before it has received: in the
// all-gather each chunk as soon as it has arrived, while others of the same step are repeated; in the
// reduce-scatter all chunks of a step together, since the least important ones may be lost.
type datagramSum struct {
	*execution
	schedule Schedule
	began    time.Time

	mu sync.Mutex // guards what follows, and the elements
	// steps are those that are received.
	steps []*arrival
	// got has a bit for each datagram of the previous rank that has arrived, by its place, below places,
	// and highest is the place behind the last one of them.
	got     []uint64
	places  int64
	highest int64
	arrived uint32
	// first and last are the times at which datagrams have arrived since the last report, which was of
	// the places before reported, and fastest is the shortest delay of one of them; least is that of
	// the call. Delays are in microseconds, and differ from the real ones by the same number.
	first, last    time.Time
	fastest, least int32
	reported       int64
	wake           chan struct{} // has a value when a step may be complete
	// sendable are the chunks that may be sent, which sending takes, and queued has a value when there
	// are some.
	sendable []sentChunk
	queued   chan struct{}
}

// clock returns the microseconds since the call began, which overflow.
func (s *datagramSum) clock() uint32 { return uint32(time.Since(s.began).Microseconds()) }

// allChunks stands for all chunks of a step, in the order of their importance.
const allChunks = -1

// close ends all steps.
func (s *datagramSum) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.steps {
		a.closed = true
	}
}

// queue makes chunks sendable. s.mu is held.
func (s *datagramSum) queue(chunks ...sentChunk) {
	s.sendable = append(s.sendable, chunks...)
	notify(s.queued)
}

// takeSendable returns the chunks that may be sent since the last call.
func (s *datagramSum) takeSendable() []sentChunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.sendable
	s.sendable = nil
	return list
}

// notify sends a value to a channel unless it has one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func newDatagramSum(x *execution, schedule Schedule) *datagramSum {
	s := &datagramSum{execution: x, schedule: schedule, began: time.Now(), least: math.MaxInt32, wake: make(chan struct{}, 1), queued: make(chan struct{}, 1)}
	s.queue(sentChunk{0, allChunks})
	for _, step := range schedule {
		to := s.bytes(step.Receive)
		n := chunksOf(len(to))
		s.steps = append(s.steps, &arrival{to: to, combine: step.Combine, seen: make([]bool, n), left: n, important: n})
		s.places += int64(n) * (maxRepeats + 1)
	}
	return s
}

// copyChunk copies a chunk of data to the end of b.
func (s *datagramSum) copyChunk(b, data []byte, i int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(b, chunkAt(data, i)...)
}

// datagramAllReduce sums over all ranks by datagrams.
func (x *execution) datagramAllReduce() error {
	s := newDatagramSum(x, append(RingReduceScatter(x.g.rank, x.g.n, x.call.Count), RingAllGather(x.g.rank, x.g.n, x.call.Count)...))
	in, out := x.g.paths[s.schedule[0].From], x.g.paths[s.schedule[0].To]
	in.expect(s)
	defer s.close() // The caller owns its elements again: a chunk may be late.
	defer in.expect(nil)
	sent := make(chan error, 1)
	go func() {
		err := newChunkSender(s, out).run()
		if err != nil {
			x.g.fail(err) // The receiving side may wait for this rank's neighbour, which waits for it.
		}
		sent <- err
	}()
	if err := s.receive(in); err != nil {
		return x.abandon(err, sent)
	}
	return <-sent
}

// lossOf returns how many of that many chunks of a step may be lost.
func (x *execution) lossOf(chunks int, combine bool) int {
	if !combine {
		return 0 // All ranks must have the same sum.
	}
	return chunks * x.call.Loss / 1000
}

// writeAnnounced announces the call to the rank before its elements: see ledger.
func (p *chunkPath) writeAnnounced(x *execution) error {
	peer := p.g.peers[p.rank]
	peer.writing.Lock()
	defer peer.writing.Unlock()
	if err := peer.writeCall(x.number, x.announced); err != nil {
		return peer.reasonOf(err)
	}
	return peer.reasonOf(peer.out.Flush())
}

// orderOf returns the order in which the chunks of a step that may lose some are sent.
func (x *execution) orderOf(data []byte) []int { return byMagnitude(data, x.call.Element, chunkSize) }

// leastSent is the number of datagrams, and measureTime the time, from which the rate is measured.
const (
	leastSent   = 64
	measureTime = 100 * time.Millisecond
)

// maxRate bounds the rate of a path, in bytes per second.
const maxRate = 1e11

// maxQueued is the time that datagrams may wait in a queue of the link before the rate falls.
const maxQueued = 10 * time.Millisecond

// adapt sets the rate after sent datagrams, of which lost have not arrived, while the others arrived
// in span, and waited for the time queued at least. The rate grows by a tenth while no more than a
// fiftieth is lost and the queue is short: the link was measured by a stream, which lost packets slow
// down. A long queue takes back what the rate has grown (as in LEDBAT, RFC 6817), and nothing more:
// streams beside it would fill the queue in any case. More than a tenth lost is taken for congestion.
// Few datagrams say nothing about the link.
func (p *chunkPath) adapt(sent, lost int, span, queued time.Duration) {
	arrived := sent - lost
	if sent < leastSent {
		return
	}
	measured := p.g.link.Bandwidth
	switch {
	case lost*10 > sent && span > 0 && arrived > 1:
		p.rate = min(max(float64(arrived)*wireSize/span.Seconds(), p.rate/8), p.rate)
	case lost*10 > sent:
		p.rate /= 2
	case queued > maxQueued:
		p.rate = max(p.rate*0.9, min(p.rate, measured))
	case lost*50 <= sent && queued < maxQueued/2:
		p.rate = min(p.rate*1.1, maxRate)
	}
	p.rate = max(p.rate, measured/1000)
}

// A pacer delays datagrams so that a rate is not exceeded.
type pacer struct {
	rate  float64 // bytes per second
	began time.Time
	sent  float64 // bytes since began
}

// pause is the time for which a pacer sends at once: shorter sleeps take longer than asked.
const pause = time.Millisecond

// wait waits until a chunk may be sent at a rate, or until the group has ended: the rate depends on
// what other nodes report.
func (p *pacer) wait(rate float64, ended <-chan struct{}) {
	if rate != p.rate {
		*p = pacer{rate: rate, began: time.Now()}
	}
	due := time.Duration(p.sent / p.rate * float64(time.Second))
	passed := time.Since(p.began)
	switch {
	case due-passed > pause:
		select {
		case <-time.After(due - passed):
		case <-ended:
		}
	case passed-due > 10*pause:
		// The sender was delayed: it does not catch up by a burst, which a queue would lose.
		p.began = p.began.Add(passed - due - 10*pause)
	}
	p.sent += wireSize
}

// bitsOf returns a bit map of chunks.
func bitsOf(chunks []bool) []byte {
	bits := make([]byte, (len(chunks)+7)/8)
	for i, set := range chunks {
		if set {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return bits
}

// parseOptional returns the chunks that may be lost, of that many.
func (p *chunkPath) parseOptional(bits []byte, chunks, loss int) ([]bool, error) {
	optional, n := make([]bool, chunks), 0
	if len(bits) != (chunks+7)/8 {
		return nil, fmt.Errorf("rank %d sent %d bytes of chunks that may be lost, of %d", p.g.name(p.rank), len(bits), chunks)
	}
	for i := range optional {
		if optional[i] = bits[i/8]>>(i%8)&1 == 1; optional[i] {
			n++
		}
	}
	if n > loss {
		return nil, fmt.Errorf("rank %d may lose %d of %d chunks, as it says: the call allows %d", p.g.name(p.rank), n, chunks, loss)
	}
	return optional, nil
}

// number returns the number of 4 bytes in a payload.
func number(payload []byte) uint32 { return binary.LittleEndian.Uint32(payload) }
