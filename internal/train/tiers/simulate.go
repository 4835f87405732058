package tiers

// Simulate returns the time and memory of a step with the given placements, as the executor moves
// the tensors: one thread writes tensors to the other tiers in the order in which they were saved,
// another one reads them back in the order of their Prefetch events. Saving waits while the device
// has no room and writes are in progress; reading ahead waits for room; using a tensor waits until
// it has been read back.
func Simulate(t *Trace, placements []Placement) Prediction {
	s := simulation{trace: t, placements: placements, ready: make([]float64, len(t.Sizes)), queues: prefetchQueues(t, placements)}
	s.measureLowerTiers()
	saved, last := 0, 0.0
	for e, i := range t.Events {
		s.now += t.Times[e] - last
		last = t.Times[e]
		s.finishWrites(s.now)
		if i == saved {
			saved++
			s.save(i)
		} else {
			s.use(i)
		}
		s.waiting = append(s.waiting, s.queues[e]...)
		s.startReads()
	}
	s.result.Seconds = s.now
	s.result.Exceeds = s.result.Exceeds || s.result.Peak > t.Limits[Device]
	return s.result
}

// prefetchQueues returns the tensors to read after each event, in the order of their use.
func prefetchQueues(t *Trace, placements []Placement) [][]int {
	queues := make([][]int, len(t.Events))
	saved := 0
	for _, i := range t.Events {
		if i == saved {
			saved++
			continue
		}
		if p := placements[i]; p.Tier != Device {
			queues[p.Prefetch] = append(queues[p.Prefetch], i)
		}
	}
	return queues
}

type simulation struct {
	trace      *Trace
	placements []Placement
	queues     [][]int
	result     Prediction

	now      float64
	resident int64     // bytes on the device
	ready    []float64 // when a tensor has been read back; 0: the read has not begun
	writes   []write   // in progress, by their ends
	written  float64   // when the last write ends
	read     float64   // when the last read ends
	waiting  []int     // tensors to read when there is room
}

// A write is a transfer from the device.
type write struct {
	end   float64
	bytes int64
}

// measureLowerTiers checks whether the other tiers have room for the tensors that lie there at the
// same time.
func (s *simulation) measureLowerTiers() {
	var held [tiers]int64
	saved := 0
	for _, i := range s.trace.Events {
		tier := s.placements[i].Tier
		if i != saved {
			held[tier] -= s.trace.Sizes[i]
			continue
		}
		saved++
		held[tier] += s.trace.Sizes[i]
		s.result.Exceeds = s.result.Exceeds || tier != Device && held[tier] > s.trace.Limits[tier]
	}
}

func (s *simulation) wait(until float64) {
	if until > s.now {
		s.result.Waited += until - s.now
		s.now = until
	}
	s.finishWrites(s.now)
}

func (s *simulation) finishWrites(now float64) {
	for len(s.writes) > 0 && s.writes[0].end <= now {
		s.resident -= s.writes[0].bytes
		s.writes = s.writes[1:]
	}
}

func (s *simulation) addResident(bytes int64) {
	s.resident += bytes
	s.result.Peak = max(s.result.Peak, s.resident)
}

func (s *simulation) save(i int) {
	size := s.trace.Sizes[i]
	for s.resident+size > s.trace.Limits[Device] && len(s.writes) > 0 {
		s.wait(s.writes[0].end)
	}
	s.addResident(size)
	if tier := s.placements[i].Tier; tier != Device {
		s.written = max(s.written, s.now) + float64(size)/s.trace.Write[tier]
		s.writes = append(s.writes, write{end: s.written, bytes: size})
	}
}

// use waits for a tensor and frees it.
func (s *simulation) use(i int) {
	if s.placements[i].Tier != Device {
		for k, other := range s.waiting {
			if other == i {
				s.waiting = append(s.waiting[:k:k], s.waiting[k+1:]...)
				break
			}
		}
		if s.ready[i] == 0 { // There was no room until now, or no read was scheduled.
			s.startRead(i)
		}
		s.wait(s.ready[i])
	}
	s.resident -= s.trace.Sizes[i]
}

func (s *simulation) startReads() {
	for len(s.waiting) > 0 && s.resident+s.trace.Sizes[s.waiting[0]] <= s.trace.Limits[Device] {
		s.startRead(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}

func (s *simulation) startRead(i int) {
	size := s.trace.Sizes[i]
	s.addResident(size)
	s.read = max(s.read, s.now) + float64(size)/s.trace.Read[s.placements[i].Tier]
	s.ready[i] = s.read
}
