package collective

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// datagramAllReduce sums over all ranks by datagrams.
func (x *execution) datagramAllReduce() error {
	schedule := append(RingReduceScatter(x.g.rank, x.g.n, x.call.Count), RingAllGather(x.g.rank, x.g.n, x.call.Count)...)
	for i, s := range schedule {
		if err := x.datagramStep(uint32(i), s); err != nil {
			return err
		}
	}
	return nil
}

// datagramStep sends the chunks of one span while it receives those of another span.
func (x *execution) datagramStep(step uint32, s Step) error {
	sent := make(chan error, 1)
	go func() {
		err := x.sendChunks(x.g.paths[s.To], step, x.bytes(s.Send), s.Combine)
		if err != nil {
			x.g.fail(err) // The receiving side may wait for this rank's neighbour, which waits for it.
		}
		sent <- err
	}()
	if err := x.receiveChunks(x.g.paths[s.From], step, x.bytes(s.Receive), s.Combine); err != nil {
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

// sendChunks sends the chunks of data, the most important ones first, and repeats those that do not
// arrive, except for the least important ones that may be lost.
func (x *execution) sendChunks(p *chunkPath, step uint32, data []byte, combine bool) error {
	chunks := chunksOf(len(data))
	if chunks == 0 {
		return nil
	}
	order := x.orderOf(data, combine)
	important := chunks - x.lossOf(chunks, combine)
	if _, err := p.await(x, p.ready, step); err != nil {
		return err
	}
	if err := p.writeAnnounced(x); err != nil {
		return err
	}
	lost, err := x.repeatChunks(p, step, data, order, important)
	if err != nil {
		return err
	}
	if combine {
		x.g.offered.Add(uint64(chunks))
		x.g.dropped.Add(uint64(lost))
	}
	return p.write(x, pathFinal, step, true)
}

// writeAnnounced announces the call to the rank before its elements: see ledger.
func (p *chunkPath) writeAnnounced(x *execution) error {
	peer := p.g.peers[p.rank]
	peer.writing.Lock()
	defer peer.writing.Unlock()
	if err := peer.writeCall(x.number, x.announced); err != nil {
		return peer.lost(err)
	}
	return peer.lost(peer.out.Flush())
}

// orderOf returns the order in which chunks are sent.
func (x *execution) orderOf(data []byte, combine bool) []int {
	if combine {
		return byMagnitude(data, x.call.Element, chunkSize)
	}
	order := make([]int, chunksOf(len(data)))
	for i := range order {
		order[i] = i
	}
	return order
}

// repeatChunks sends chunks in the given order until the first ones of them, that many, have
// arrived. It returns how many of the others have not.
func (x *execution) repeatChunks(p *chunkPath, step uint32, data []byte, order []int, important int) (lost int, err error) {
	sending := order
	for round := 0; round < maxRepeats && !p.dead; round++ {
		if err := p.sendRound(x, step, data, sending); err != nil {
			return 0, err
		}
		bits, span, err := p.awaitMissing(x, step, len(order))
		if err != nil {
			return 0, err
		}
		p.adapt(len(sending), len(missingOf(sending, bits)), span)
		lost = len(missingOf(order[important:], bits))
		if sending = missingOf(order[:important], bits); len(sending) == 0 {
			return lost, nil
		}
		x.g.repeated.Add(uint64(len(sending)))
	}
	p.dead = true // Datagrams would cost more than they save.
	return lost, x.sendOverStream(p, step, data, sending)
}

// awaitMissing waits for the bit map of missing chunks, and the time in which the others of the
// round have arrived.
func (p *chunkPath) awaitMissing(x *execution, step uint32, chunks int) (bits []byte, span time.Duration, err error) {
	m, err := p.await(x, p.missing, step)
	if err != nil {
		return nil, 0, err
	}
	if len(m.payload) != 8+(chunks+7)/8 {
		return nil, 0, fmt.Errorf("rank %d reported %d bytes of missing chunks of %d", p.g.name(p.rank), len(m.payload)-8, chunks)
	}
	return m.payload[8:], time.Duration(binary.LittleEndian.Uint64(m.payload)), nil
}

// missingOf returns the chunks whose bits are set.
func missingOf(chunks []int, bits []byte) []int {
	return slices.DeleteFunc(slices.Clone(chunks), func(i int) bool { return bits[i/8]>>(i%8)&1 == 0 })
}

// sendOverStream sends chunks over the stream.
func (x *execution) sendOverStream(p *chunkPath, step uint32, data []byte, chunks []int) error {
	for _, i := range chunks {
		if err := p.write(x, pathChunk, step, false, binary.LittleEndian.AppendUint32(nil, uint32(i)), chunkAt(data, i)); err != nil {
			return err
		}
	}
	return nil
}

// sendRound sends chunks as datagrams, at the path's rate, and the end of the round.
func (p *chunkPath) sendRound(x *execution, step uint32, data []byte, chunks []int) error {
	datagram := make([]byte, 0, chunkHead+chunkSize)
	pace := pacer{rate: p.rate, began: time.Now()}
	for _, i := range chunks {
		pace.wait()
		d := binary.LittleEndian.AppendUint64(datagram, x.number)
		d = binary.LittleEndian.AppendUint32(d, step)
		d = binary.LittleEndian.AppendUint32(d, uint32(i))
		if err := p.Path.Send(append(d, chunkAt(data, i)...)); err != nil {
			return p.g.peers[p.rank].lost(err)
		}
	}
	return p.write(x, pathEnd, step, true)
}

// leastSent is the number of chunks from which a round is taken for a measurement.
const leastSent = 64

// maxRate bounds the rate of a path, in bytes per second.
const maxRate = 1e11

// adapt sets the rate of the next round after sent chunks, of which lost have not arrived, while
// the others arrived in span. The rate grows by a tenth while no more than a fiftieth is lost: the
// link was measured by a stream, which lost packets slow down. More than a tenth is taken for
// congestion. A short round says nothing about the link.
func (p *chunkPath) adapt(sent, lost int, span time.Duration) {
	arrived := sent - lost
	if sent < leastSent {
		return
	}
	p.dead = arrived == 0
	switch {
	case lost*50 <= sent:
		p.rate = min(p.rate*1.1, maxRate)
	case lost*10 <= sent:
	case span > 0 && arrived > 1:
		p.rate = min(max(float64(arrived)*wireSize/span.Seconds(), p.rate/8), p.rate)
	default:
		p.rate /= 2
	}
	p.rate = max(p.rate, p.g.link.Bandwidth/1000)
}

// A pacer delays datagrams so that a rate is not exceeded.
type pacer struct {
	rate  float64 // bytes per second
	began time.Time
	sent  float64 // bytes since began
}

// pause is the time for which a pacer sends at once: shorter sleeps take longer than asked.
const pause = time.Millisecond

// wait waits until a chunk may be sent.
func (p *pacer) wait() {
	due := time.Duration(p.sent / p.rate * float64(time.Second))
	passed := time.Since(p.began)
	switch {
	case due-passed > pause:
		time.Sleep(due - passed)
	case passed-due > 10*pause:
		// The sender was delayed: it does not catch up by a burst, which a queue would lose.
		p.began = p.began.Add(passed - due - 10*pause)
	}
	p.sent += wireSize
}

// receiveChunks receives the chunks of a step.
func (x *execution) receiveChunks(p *chunkPath, step uint32, to []byte, combine bool) error {
	if len(to) == 0 {
		return nil
	}
	a := &arrival{x: x, step: step, to: to, combine: combine, seen: make([]bool, chunksOf(len(to))), all: make(chan struct{})}
	a.left = len(a.seen)
	p.expect(a)
	defer p.expect(nil)
	if err := p.write(x, pathReady, step, true); err != nil {
		return err
	}
	for {
		m, err := p.await(x, p.ends, step)
		if err != nil {
			return err
		}
		if m.kind == pathFinal {
			return p.checkArrival(a, x.lossOf(len(a.seen), combine))
		}
		if err := p.reportMissing(x, a); err != nil {
			return err
		}
	}
}

func (p *chunkPath) expect(a *arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrival = a
}

// reportMissing sends the bit map of missing chunks, after a time for datagrams that the end of the
// round has overtaken.
func (p *chunkPath) reportMissing(x *execution, a *arrival) error {
	late := time.NewTimer(straggling)
	defer late.Stop()
	select {
	case <-a.all:
	case <-late.C:
	case <-p.g.Ended():
	}
	return p.write(x, pathMissing, a.step, true, p.missingBits(a))
}

// missingBits returns the payload of pathMissing, and begins a round.
func (p *chunkPath) missingBits(a *arrival) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := binary.LittleEndian.AppendUint64(nil, uint64(a.last.Sub(a.first)))
	b = append(b, make([]byte, (len(a.seen)+7)/8)...)
	for i, seen := range a.seen {
		if !seen {
			b[8+i/8] |= 1 << (i % 8)
		}
	}
	a.first, a.last = time.Time{}, time.Time{}
	return b
}

// checkArrival returns an error if more than that many chunks are missing.
func (p *chunkPath) checkArrival(a *arrival, loss int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.left > loss {
		return fmt.Errorf("rank %d lost %d of %d chunks: the call allows %d", p.g.name(p.rank), a.left, len(a.seen), loss)
	}
	return nil
}
