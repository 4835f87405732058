package recording

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// The records of a link's stream beside the worker's, and the worker's entries:
// internal/accel/opencl/tracer.go.
const (
	clockRecord = 6
	clockSize   = 4 * 8

	entryMessage = 1
	entryReply   = 2
	entryDevice  = 3
)

// message holds the times that a worker recorded of one message, on the program's clock; 0 means
// unknown.
type message struct {
	received           int64
	executed, waited   int64
	replied            int64
	start, deviceTime  int64
	hasBegun, hasReply bool
	hasDevice          bool
}

// linkReader finds the records that a link's worker made of the messages, which follow the calls.
// It keeps the records of calls that Join has not reached.
type linkReader struct {
	cursor *cursor
	offset int64
	found  map[uint64]*message
	ended  bool
}

// newLinkReader reads the clock readings at the beginning of the stream, and uses the offset of the
// reading with the shortest round trip.
func newLinkReader(s *stream, d *trace.Device) (*linkReader, error) {
	l := &linkReader{cursor: s.cursor(), found: make(map[uint64]*message)}
	var trips []int64
	best := int64(math.MaxInt64)
	clocks := s.cursor()
	for {
		r, err := clocks.read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if r.kind != clockRecord {
			if len(trips) > 0 {
				break
			}
			continue
		}
		if len(r.body) != clockSize-8 {
			return nil, malformed("a reading of a clock of %d bytes", len(r.body))
		}
		word := func(i int) int64 { return int64(binary.LittleEndian.Uint64(r.body[8*i:])) }
		theirs, before, after := word(0), word(1), word(2)
		if after < before {
			continue
		}
		trips = append(trips, after-before)
		if after-before < best {
			best = after - before
			d.Clock = trace.Clock{Offset: before + best/2 - theirs, Uncertainty: best / 2}
			if theirs >= before && theirs <= after {
				d.Clock = trace.Clock{} // one machine, one clock
			}
		}
	}
	l.offset = d.Clock.Offset
	if n := len(trips); n > 0 {
		slices.Sort(trips)
		d.Link.RTT, d.Link.RTTSpread = trips[n/2], trips[n-1-n/4]-trips[n/4]
	}
	return l, nil
}

// find returns the records of a message, nil if there are none. It reads on until all expected
// records are present or the stream ends.
func (l *linkReader) find(serial uint64, reply, device bool) (*message, error) {
	for {
		m := l.found[serial]
		if m != nil && m.hasBegun && (m.hasReply || !reply) && (m.hasDevice || !device) {
			break
		}
		if l.ended || len(l.found) >= lookAhead {
			break
		}
		if err := l.readMore(); err != nil {
			return nil, err
		}
	}
	m := l.found[serial]
	delete(l.found, serial)
	return m, nil
}

// readMore reads the entries of one notice of the worker.
func (l *linkReader) readMore() error {
	r, err := l.cursor.read()
	switch {
	case errors.Is(err, io.EOF):
		l.ended = true
		return nil
	case err != nil:
		return err
	case r.kind == clockRecord:
		return nil
	case r.kind != workerRecord || len(r.body) < workerHead-8:
		return malformed("a record of kind %d of a worker", r.kind)
	}
	size := binary.LittleEndian.Uint64(r.body)
	if size > uint64(len(r.body)-8) {
		return malformed("%d bytes of a worker in a record of %d", size, len(r.body))
	}
	return l.entries(r.body[8 : 8+size])
}

var errEntries = malformed("entries of a worker that are cut off or out of range")

// entries decodes the entries that a worker has sent.
func (l *linkReader) entries(b []byte) error {
	var serial uint64
	var received int64
	bad := false
	varint := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			bad, b = true, nil
			return 0
		}
		b = b[n:]
		return v
	}
	length := func() int64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<60 {
			bad, b = true, nil
			return 0
		}
		b = b[n:]
		return int64(v)
	}
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		of := serial + uint64(varint())
		at := received + varint()
		m := l.message(of)
		switch kind {
		case entryMessage:
			serial, received = of, at
			m.received, m.hasBegun = at+l.offset, true
			m.executed, m.waited = length(), length()
		case entryReply:
			m.replied, m.hasReply = at+l.offset, true
		case entryDevice:
			m.start, m.hasDevice = at+l.offset, true
			m.deviceTime = length()
		default:
			return errEntries
		}
		if bad {
			return errEntries
		}
	}
	return nil
}

func (l *linkReader) message(serial uint64) *message {
	m := l.found[serial]
	if m == nil {
		m = &message{}
		if len(l.found) < lookAhead {
			l.found[serial] = m
		}
	}
	return m
}

// joinRemote adds the times that the link's worker recorded of the call's last message.
func (p *joiner) joinRemote(f *function, c *rawCall, r *trace.Record, q *queueState) error {
	switch {
	case c.flags&flagWaited != 0:
		r.Class = trace.WaitedFor
	case c.flags&flagSent != 0:
		r.Class = trace.Early
	}
	r.Blocking = f.blocking(r.Class)
	r.Encode, r.Blocked = min(c.encode, r.Duration()), min(c.blocked, r.Duration())
	r.Device = min(c.link, uint8(p.count-1))
	if q != nil && c.flags&flagSent == 0 {
		r.Device = q.device
	}
	link := p.links[uint32(r.Device)]
	if c.flags&flagSent == 0 || link == nil {
		r.Execute = r.Duration() - r.Blocked
		return nil
	}
	m, err := link.find(c.serial, c.flags&flagWaited != 0 && f.answer != "early", f.timed && !r.Failed)
	if err != nil || m == nil {
		return err
	}
	p.setMessageTimes(f, c, r, m, q)
	return nil
}

// setMessageTimes sets the times of a message that the worker has recorded.
func (p *joiner) setMessageTimes(f *function, c *rawCall, r *trace.Record, m *message, q *queueState) {
	sent := r.Begin + r.Encode
	received := m.received - p.origin
	if m.hasBegun {
		r.WireForward = max(0, received-sent) + m.waited
		r.Execute = max(0, m.executed-m.waited)
	}
	if m.hasDevice {
		r.Start, r.DeviceTime = m.start-p.origin, m.deviceTime
	}
	if m.hasReply && r.Class == trace.WaitedFor {
		r.WireBackward = max(0, r.End-(m.replied-p.origin))
	}
	switch {
	case !m.hasBegun:
		return
	case r.Blocking != trace.HostBlocking:
		// Builds run beside the dispatcher, which continues; the call waits for them.
		if m.hasReply && r.Class == trace.WaitedFor {
			r.Execute = max(r.Execute, m.replied-m.received-m.waited)
		}
		return
	}
	// The dispatcher waited in the driver until the device was done.
	until := p.waitedUntil(f, c, r, q, true)
	r.Execute -= min(r.Execute, max(0, until-received))
}
