package trace

import "encoding/binary"

// append encodes r after the records that s has seen.
func (s *blockState) append(b []byte, r *Record) []byte {
	at := threadKey{r.Process, r.Thread}
	last, known := s.ends[at]
	mask := s.mask(r, at, known && last+r.Gap == r.Begin)
	b = binary.AppendUvarint(b, mask)
	b = binary.AppendUvarint(b, uint64(r.Op)<<7|r.kindBits())
	if mask&otherThread != 0 {
		b = binary.AppendUvarint(b, uint64(r.Process))
		b = binary.AppendUvarint(b, uint64(r.Thread))
		s.thread = at
	}
	if mask&otherDevice != 0 {
		b = append(b, r.Device)
		s.device = r.Device
	}
	if mask&newQueue != 0 {
		b = binary.AppendUvarint(b, r.Queue)
		s.queue = r.Queue
	}
	if mask&explicitBegin != 0 {
		b = binary.AppendVarint(b, r.Begin-s.begin)
	}
	s.begin = r.Begin
	b = appendSet(b, mask&hasGap, r.Gap)
	b = binary.AppendUvarint(b, uint64(r.End-r.Begin))
	s.ends[at] = r.End
	b = appendSet(b, mask&hasEncode, r.Encode)
	b = appendSet(b, mask&hasWireForward, r.WireForward)
	b = appendSet(b, mask&hasExecute, r.Execute)
	b = appendSet(b, mask&hasWireBackward, r.WireBackward)
	b = appendSet(b, mask&hasBlocked, r.Blocked)
	b = appendSet(b, mask&hasForward, int64(r.Forward))
	b = appendSet(b, mask&hasBackward, int64(r.Backward))
	return s.appendCommand(b, mask, r)
}

// appendCommand encodes the fields of a command: device times and events.
func (s *blockState) appendCommand(b []byte, mask uint64, r *Record) []byte {
	if mask&hasDevice != 0 {
		b = binary.AppendVarint(b, r.Start-max(s.start, r.Begin))
		b = binary.AppendUvarint(b, uint64(r.DeviceTime))
		s.start = r.Start + r.DeviceTime
	}
	if mask&hasEvent != 0 {
		b = binary.AppendVarint(b, int64(r.Event-s.event))
		s.event = r.Event
	}
	if mask&hasWaits != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Waits)))
		for _, e := range r.Waits {
			b = binary.AppendVarint(b, int64(s.event-e))
		}
	}
	return b
}

func appendSet(b []byte, present uint64, v int64) []byte {
	if present == 0 {
		return b
	}
	return binary.AppendUvarint(b, uint64(v))
}

// mask returns which fields of r are encoded. adjacent says that r begins its gap after the end of
// the thread's previous record in the block.
func (s *blockState) mask(r *Record, at threadKey, adjacent bool) uint64 {
	var m uint64
	set := func(flag uint64, present bool) {
		if present {
			m |= flag
		}
	}
	set(hasGap, r.Gap != 0)
	set(hasExecute, r.Execute != 0)
	set(hasEncode, r.Encode != 0)
	set(hasWireForward, r.WireForward != 0)
	set(hasForward, r.Forward != 0)
	set(hasBlocked, r.Blocked != 0)
	set(hasDevice, r.Start != 0 || r.DeviceTime != 0)
	set(hasEvent, r.Event != 0)
	set(hasBackward, r.Backward != 0)
	set(hasWireBackward, r.WireBackward != 0)
	set(sameQueue, r.Queue != 0 && r.Queue == s.queue)
	set(newQueue, r.Queue != 0 && r.Queue != s.queue)
	set(hasWaits, len(r.Waits) > 0)
	set(otherThread, at != s.thread)
	set(explicitBegin, !adjacent)
	set(otherDevice, r.Device != s.device)
	return m
}
