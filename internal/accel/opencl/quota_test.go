package opencl

import "testing"

// fakeQuota grants from a fixed amount.
type fakeQuota struct {
	memory *deviceMemory
	left   uint64
	asked  int
}

func (q *fakeQuota) Reserve(bytes uint64) uint64 {
	q.asked++
	if bytes > q.left {
		return 0
	}
	q.left -= bytes
	q.memory.grant(bytes)
	return bytes
}

func TestQuota(t *testing.T) {
	m := &deviceMemory{}
	m.init(64<<20, 1<<30)
	q := &fakeQuota{memory: m, left: 10 << 20}
	m.source, m.quota = q, 4<<20
	if !m.reserve(4<<20) || q.asked != 0 {
		t.Errorf("an allocation within the quota asked %d times", q.asked)
	}
	for range 2 {
		if !m.reserve(100) || q.asked != 1 {
			t.Errorf("small allocations asked %d times, want once for a unit", q.asked)
		}
	}
	if m.reserve(20 << 20) {
		t.Error("more was allocated than granted")
	}
	if !m.reserve(9<<20) || m.reserve(2<<20) {
		t.Error("what is left of the lease was not granted exactly")
	}
	m.release(9 << 20)
	before := m.inUse()
	if got := m.reclaim(); got < 9<<20 || m.quota < before {
		t.Errorf("reclaimed %d, quota %d of which %d are in use", got, m.quota, before)
	}
	if m.reserve(65 << 20) {
		t.Error("more was allocated than the lease has")
	}
}
