package overhead

import (
	"math"
	"sort"

	"github.com/outboard-run/outboard/internal/cost"
)

// Sizes of flow control, in bytes.
const (
	// ringArea is the size of one direction of the ring (record 0001). A thread may be that far
	// ahead of the bytes that the other end has acknowledged.
	ringArea = 4 << 20
	// ackStep is the number of bytes whose arrival the other end of a ring acknowledges at once
	// (internal/accel/bridge). Fewer bytes are acknowledged after a delay, which is not modelled.
	ackStep = ringArea / 8
	// frameSize is the largest frame of a stream.
	frameSize = 128 << 10
	// creditStep is the granularity of flow control in the model.
	creditStep = 32 << 10
	// firstWindow is half of the window that a stream has from its first credit on, and lastWindow
	// half of its largest one (internal/fabric/framed). The receiver returns credit when half of
	// the window has been read, so a burst of messages finds between half of the window and all of
	// it; the model takes half.
	firstWindow = 256 << 10
	lastWindow  = 4 << 20
	// longestMessage and controlled bound the bytes whose flow control is evaluated, of a message
	// and of a program, and so the work for a hostile trace.
	longestMessage = 1 << 30
	controlled     = 1 << 38
)

// direction is a program's stream over one direction of the link. Bytes leave when there is credit
// for them, which takes a round trip to come back.
//
// Credit is given for whole steps, at fixed positions of the stream, so that it does not depend on
// how bytes are divided into messages. For the same reason the window grows with the sequence of
// calls and not with their times: results stay monotone.
type direction struct {
	on, credits cost.Resource
	// bucket is the token bucket before the link, 0 for none, and tokens the point at which it has
	// tokens for a message.
	bucket cost.Resource
	tokens cost.Point
	// sent is the number of bytes sent over the link, granted that number when growth of the window
	// was last considered, grants how often it was considered.
	sent, granted int64
	grants        int
	window        int64
	// waits are the positions of the stream at the program's last two waits for an answer.
	waits [2]int64
	marks []mark // in the order of their bytes
}

// mark is the moment at which the sender knows that all bytes up to a position have arrived.
type mark struct {
	bytes int64
	at    cost.Point
}

// newDirection returns the stream of a program over a link with the round-trip times of trip.
func newDirection(e *cost.Evaluator, on, bucket cost.Resource, trip cost.Profile) (direction, error) {
	credits, err := e.Resource(trip)
	return direction{on: on, credits: credits, bucket: bucket, tokens: e.Point(), window: firstWindow}, err
}

// send sends a message over one direction of the link.
func (m *model) send(d *direction, in flow, bytes uint64) flow {
	k := m.links
	work := k.relay + cost.Time(float64(bytes)*k.perByte)
	m.caller.client.Use(work)
	m.caller.device.Use(work)
	m.work.relay += work
	if bytes > longestMessage || d.sent > controlled {
		d.takeTokens(m.e, in.head, int64(min(bytes, math.MaxInt64)))
		return m.pass(d.on, in, k.relay, int64(min(bytes, math.MaxInt64)))
	}
	if in.head == in.tail && bytes < fluidSize && d.sent%creditStep > 0 && d.sent%creditStep+int64(bytes) < creditStep {
		d.sent += int64(bytes)
		d.takeTokens(m.e, in.tail, int64(bytes))
		return m.pass(d.on, in, k.relay, int64(bytes))
	}
	return m.sendSteps(d, in, int64(bytes))
}

// sendSteps sends a message step by step, each step once there is credit for it.
func (m *model) sendSteps(d *direction, in flow, bytes int64) flow {
	head, tail := m.point(), m.point()
	d.awaitCredit(m.e)
	m.e.Add(cost.Task{On: d.on, After: [2]cost.Point{in.head}, Cost: m.links.relay, Done: head})
	for bytes > 0 {
		n := min(bytes, creditStep-d.sent%creditStep)
		d.awaitCredit(m.e)
		d.takeTokens(m.e, m.e.Free(d.on), n)
		m.e.Add(cost.Task{On: d.on, Units: n})
		d.sent, bytes = d.sent+n, bytes-n
		if d.sent%creditStep == 0 {
			d.mark(m.e)
		}
	}
	m.e.Add(cost.Task{On: d.on, After: [2]cost.Point{in.tail}, Done: tail})
	return flow{head, tail}
}

// awaitCredit delays the link at the beginning of a step until there is credit for all of it, and
// space in the ring.
func (d *direction) awaitCredit(e *cost.Evaluator) {
	if d.sent%creditStep == 0 {
		e.Wait(d.on, d.arrived(d.sent+creditStep-d.window))
		e.Wait(d.on, d.acknowledged(d.sent+creditStep-ringArea))
	}
}

// mark records when the credit for all bytes sent so far will be back.
func (d *direction) mark(e *cost.Evaluator) {
	for len(d.marks) > 0 && d.marks[0].bytes <= d.sent-creditStep-ringArea {
		e.Release(d.marks[0].at)
		d.marks = d.marks[1:]
	}
	at := e.Point()
	e.Add(cost.Task{On: d.credits, After: [2]cost.Point{e.Free(d.on)}, Done: at})
	d.marks = append(d.marks, mark{d.sent, at})
	d.grow()
}

// grow doubles the window if credit for half of it comes within two round trips of the credit
// before: if that many bytes, and one more frame, are sent with at most one wait between them.
func (d *direction) grow() {
	if d.sent-d.granted < d.window {
		return
	}
	d.granted = d.sent
	// The first credit starts the clock of the second.
	if d.grants++; d.grants > 2 && d.sent-d.waits[0] >= d.window+frameSize {
		d.window = min(2*d.window, lastWindow)
	}
}

// waited records that the program has waited for an answer.
func (d *direction) waited() { d.waits = [2]int64{d.waits[1], d.sent} }

// arrived returns when the sender knows that the whole steps up to a position have arrived.
func (d *direction) arrived(position int64) cost.Point {
	i := sort.Search(len(d.marks), func(i int) bool { return d.marks[i].bytes > position })
	if i == 0 {
		return 0
	}
	return d.marks[i-1].at
}

// acknowledged returns when the sender knows that the bytes up to a position have arrived, from
// acknowledgements of whole ackSteps.
func (d *direction) acknowledged(position int64) cost.Point {
	if position <= 0 {
		return 0
	}
	return d.arrived((position + ackStep - 1) / ackStep * ackStep)
}

// sendAhead sends a message towards the device, and makes its thread wait for space in the ring.
func (m *model) sendAhead(t *thread, in flow, bytes uint64) flow {
	out := m.send(&m.up, in, bytes)
	if m.up.sent > ringArea {
		m.e.Wait(t.on, m.up.acknowledged(m.up.sent-ringArea))
	}
	return out
}
