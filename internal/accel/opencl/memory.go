package opencl

import (
	"math"
	"sync/atomic"

	"github.com/outboard-run/outboard"
)

// memory counts what the session has allocated on the device.
type memory struct {
	limit uint64
	used  atomic.Uint64
}

func (m *memory) init(lease, device outboard.Bytes) {
	m.limit = uint64(device)
	if lease > 0 && (uint64(lease) < m.limit || m.limit == 0) {
		m.limit = uint64(lease)
	}
	if m.limit == 0 {
		m.limit = math.MaxUint64
	}
}

func (m *memory) inUse() uint64 { return m.used.Load() }

// take reserves size bytes, if the limit allows.
func (m *memory) take(size uint64) bool {
	for {
		used := m.used.Load()
		if size > m.limit-min(used, m.limit) {
			return false
		}
		if m.used.CompareAndSwap(used, used+size) {
			return true
		}
	}
}

// force counts size bytes that are allocated already.
func (m *memory) force(size uint64) { m.used.Add(size) }

func (m *memory) give(size uint64) { m.used.Add(-size) }
