package collective

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// A call with a Loss sums by a ring whose reduce-scatter may drop parts: the sender orders the
// parts of each step by the magnitude of their elements, and once the step takes longer than its
// link needs for all of them, drops the last ones, up to the bound. The all-gather that follows
// drops nothing, so all ranks have the same sum. That is the tolerance of MLT (Wang and others,
// "Towards Domain-Specific Network Transport for Distributed DNN Training", NSDI 2024), bounded by
// the sender; on a reliable stream, lost parts are parts that were not sent.

const (
	// partSize is the size of a part, partHead that of the header before its elements, in bytes.
	partSize = 16 << 10
	partHead = 4
)

// Losses counts the parts of calls with a Loss: parts of 16 KiB, or chunks of datagrams.
type Losses struct {
	// Dropped of Offered parts of this rank were not added to sums. Repeated were sent again, since
	// their datagrams had been lost.
	Dropped, Offered, Repeated uint64
}

// Lost returns the counts of this rank so far.
func (g *Group) Lost() Losses {
	return Losses{Dropped: g.dropped.Load(), Offered: g.offered.Load(), Repeated: g.repeated.Load()}
}

// lossyAllReduce sums over all ranks.
func (x *execution) lossyAllReduce() error {
	for _, s := range RingReduceScatter(x.g.rank, x.g.n, x.call.Count) {
		if err := x.lossyStep(s); err != nil {
			return err
		}
	}
	return x.steps(RingAllGather(x.g.rank, x.g.n, x.call.Count))
}

// lossyStep sends the parts of one span while it receives those of another span.
func (x *execution) lossyStep(s Step) error {
	sent := make(chan error, 1)
	go func() { sent <- x.sendParts(x.g.peers[s.To], x.bytes(s.Send)) }()
	if err := x.receiveParts(x.g.peers[s.From], x.bytes(s.Receive)); err != nil {
		return x.abandon(err, sent)
	}
	return <-sent
}

// partsOf returns the number of parts of that many bytes.
func partsOf(size int) int { return (size + partSize - 1) / partSize }

// partAt returns a part of data.
func partAt(data []byte, i int) []byte { return data[i*partSize : min((i+1)*partSize, len(data))] }

// sendParts sends the parts of data, the most important ones first, and drops the last ones, within
// the call's bound, once their time has passed.
func (x *execution) sendParts(p *peer, data []byte) error {
	order := byMagnitude(data, x.call.Element, partSize)
	least := len(order) - len(order)*x.call.Loss/1000
	limit := time.Now().Add(x.g.transferTime(len(data)))
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := p.writeCall(x.number, x.announced); err != nil {
		return p.reasonOf(err)
	}
	sent := 0
	for _, i := range order {
		if sent >= least && time.Now().After(limit) {
			break
		}
		if err := p.writePart(x.number, i, partAt(data, i)); err != nil {
			return p.reasonOf(err)
		}
		sent++
	}
	x.g.offered.Add(uint64(len(order)))
	x.g.dropped.Add(uint64(len(order) - sent))
	if err := p.write(head{kind: kindEnd, number: x.number}, nil); err != nil {
		return p.reasonOf(err)
	}
	return p.reasonOf(p.out.Flush())
}

// transferTime returns how long the slowest link takes for that many bytes.
func (g *Group) transferTime(bytes int) time.Duration {
	seconds := float64(bytes) / max(g.link.Bandwidth, 1)
	return g.link.Latency + time.Duration(min(seconds*float64(time.Second), math.MaxInt64/4))
}

func (p *peer) writePart(number uint64, i int, part []byte) error {
	var b [headSize + partHead]byte
	h := head{kindPart, uint32(partHead + len(part)), number}.append(b[:0])
	if _, err := p.out.Write(binary.LittleEndian.AppendUint32(h, uint32(i))); err != nil {
		return err
	}
	_, err := p.out.Write(part)
	return err
}

// receiveParts adds the received parts to their elements.
func (x *execution) receiveParts(p *peer, to []byte) error {
	seen := make([]bool, partsOf(len(to)))
	for {
		h, err := p.await()
		if err != nil {
			return err
		}
		if h.number != x.number || h.kind != kindPart && h.kind != kindEnd {
			return fmt.Errorf("rank %d sent a message of kind %d in call %d where parts of call %d were due", p.g.name(p.rank), h.kind, h.number, x.number)
		}
		if h.kind == kindPart {
			if err := x.receivePart(p, h, to, seen); err != nil {
				return err
			}
		}
		p.taken <- struct{}{}
		if h.kind == kindEnd {
			return x.checkParts(p, seen)
		}
	}
}

func (x *execution) receivePart(p *peer, h head, to []byte, seen []bool) error {
	var b [partHead]byte
	if h.length < partHead {
		return fmt.Errorf("rank %d sent a part of %d bytes", p.g.name(p.rank), h.length)
	}
	if _, err := io.ReadFull(p.in, b[:]); err != nil {
		return p.lost(err)
	}
	i := int(binary.LittleEndian.Uint32(b[:]))
	if i >= len(seen) || seen[i] || int(h.length) != partHead+len(partAt(to, i)) {
		return fmt.Errorf("rank %d sent a part %d of %d bytes: it was sent before, or there is none", p.g.name(p.rank), i, h.length)
	}
	seen[i] = true
	target := partAt(to, i)
	got := x.g.aside(partSize)[:len(target)]
	if _, err := io.ReadFull(p.in, got); err != nil {
		return p.lost(err)
	}
	combine(target, got, x.call.Element, Sum)
	return nil
}

// checkParts returns an error if a rank has dropped more than the call allows.
func (x *execution) checkParts(p *peer, seen []bool) error {
	dropped := 0
	for _, s := range seen {
		if !s {
			dropped++
		}
	}
	if dropped > len(seen)*x.call.Loss/1000 {
		return fmt.Errorf("rank %d dropped %d of %d parts: the call allows %d thousandths", p.g.name(p.rank), dropped, len(seen), x.call.Loss)
	}
	return nil
}

// byMagnitude returns the numbers of the parts of data, of that many bytes each, the parts with the
// greatest elements first. A part with a NaN comes before all others.
func byMagnitude(data []byte, e Element, size int) []int {
	order := make([]int, (len(data)+size-1)/size)
	magnitude := make([]float64, len(order))
	for i := range order {
		order[i] = i
		part := data[i*size : min((i+1)*size, len(data))]
		if e == Float32 {
			magnitude[i] = magnitudeOf(view[float32](part))
		} else {
			magnitude[i] = magnitudeOf(view[float64](part))
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(magnitude[b], magnitude[a]) })
	return order
}

// magnitudeOf returns the sum of the squares, infinite if an element is NaN.
func magnitudeOf[T float](part []T) (sum float64) {
	for _, v := range part {
		sum += float64(v) * float64(v)
	}
	if math.IsNaN(sum) {
		return math.Inf(1)
	}
	return sum
}
