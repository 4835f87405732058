package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// decoder reads varints from a block's payload; the first that cannot be read sets bad.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// set reads a non-negative int64 if its bit is in the mask; otherwise it returns 0.
func (d *decoder) set(present uint64) int64 {
	if present == 0 {
		return 0
	}
	v := d.uvarint()
	if v > math.MaxInt64 {
		d.bad = true
		return 0
	}
	return int64(v)
}

func (d *decoder) u32() uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.bad = true
	}
	return uint32(v)
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.bad = true
		return 0
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

var errRecord = errors.New("a record that is incomplete or out of range")

// next decodes a record that append encoded. waits is reused as the memory of Record.Waits.
func (s *blockState) next(d *decoder, h *Header, waits []uint64) (Record, error) {
	mask, call := d.uvarint(), d.uvarint()
	r := Record{
		Class: Class(call & 3), Blocking: Blocking(call >> 2 & 3),
		Command: call>>4&1 != 0, OutOfOrder: call>>5&1 != 0, Failed: call>>6&1 != 0,
	}
	op := call >> 7
	if d.bad || mask>>maskBits != 0 || op >= uint64(len(h.Ops)) || r.Class >= classes || r.Blocking >= blockings {
		return r, errRecord
	}
	r.Op = uint16(op)
	if err := s.decodeOrigin(d, &r, mask, h); err != nil {
		return r, err
	}
	if err := s.times(d, &r, mask); err != nil {
		return r, err
	}
	r.Forward, r.Backward = uint64(d.set(mask&hasForward)), uint64(d.set(mask&hasBackward))
	if mask&hasDevice != 0 {
		r.Start = max(s.start, r.Begin) + d.varint()
		r.DeviceTime = d.set(hasDevice)
		s.start = r.Start + r.DeviceTime
	}
	if mask&hasEvent != 0 {
		r.Event = s.event + uint64(d.varint())
		s.event = r.Event
	}
	if mask&hasWaits != 0 {
		n := d.uvarint()
		if n > maxWaits || n > uint64(len(d.rest)) {
			return r, errRecord
		}
		r.Waits = waits[:0]
		for range n {
			r.Waits = append(r.Waits, s.event-uint64(d.varint()))
		}
	}
	if d.bad {
		return r, errRecord
	}
	return r, r.validate()
}

// decodeOrigin decodes where the call was made: thread, device, queue.
func (s *blockState) decodeOrigin(d *decoder, r *Record, mask uint64, h *Header) error {
	if mask&otherThread != 0 {
		s.thread = threadKey{d.u32(), d.u32()}
	}
	r.Process, r.Thread = s.thread.process, s.thread.thread
	if mask&otherDevice != 0 {
		s.device = d.byte()
	}
	if int(s.device) >= len(h.Devices) {
		return fmt.Errorf("a record of device %d of %d", s.device, len(h.Devices))
	}
	r.Device = s.device
	switch {
	case mask&newQueue != 0:
		s.queue = d.uvarint()
		r.Queue = s.queue
	case mask&sameQueue != 0:
		r.Queue = s.queue
	}
	return nil
}

// times decodes the times on the program's side and the worker's.
func (s *blockState) times(d *decoder, r *Record, mask uint64) error {
	last, known := s.ends[s.thread]
	var explicit int64
	if mask&explicitBegin != 0 {
		explicit = s.begin + d.varint()
	}
	r.Gap = d.set(mask & hasGap)
	switch {
	case mask&explicitBegin != 0:
		r.Begin = explicit
	case known:
		r.Begin = last + r.Gap
	default:
		return errRecord
	}
	r.End = r.Begin + d.set(^uint64(0))
	if !known && len(s.ends) >= maxBlockThreads {
		return fmt.Errorf("a block of more than %d threads", maxBlockThreads)
	}
	s.ends[s.thread], s.begin = r.End, r.Begin
	r.Encode = d.set(mask & hasEncode)
	r.WireForward = d.set(mask & hasWireForward)
	r.Execute = d.set(mask & hasExecute)
	r.WireBackward = d.set(mask & hasWireBackward)
	r.Blocked = d.set(mask & hasBlocked)
	return nil
}

// maxTime bounds the times and durations of a record: about 36 years, so that the sum of a few
// cannot overflow. maxBytes bounds the sizes.
const (
	maxTime  = 1 << 60
	maxBytes = 1 << 50
)

func (r *Record) validate() error {
	for _, t := range []int64{r.Begin, r.End, r.Start} {
		if t < -maxTime || t > maxTime {
			return errRecord
		}
	}
	for _, d := range []int64{r.Gap, r.End - r.Begin, r.Encode, r.WireForward, r.Execute, r.WireBackward, r.Blocked, r.DeviceTime} {
		if d < 0 || d > maxTime {
			return errRecord
		}
	}
	if r.Forward > maxBytes || r.Backward > maxBytes {
		return errRecord
	}
	return nil
}
