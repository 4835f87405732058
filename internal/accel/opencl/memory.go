package opencl

import (
	"math"
	"sync/atomic"

	"github.com/outboard-run/outboard"
)

// deviceMemory counts what the session has allocated on the device.
type deviceMemory struct {
	limit uint64
	used  atomic.Uint64
}

func (m *deviceMemory) init(lease, device outboard.Bytes) {
	m.limit = uint64(device)
	if lease > 0 && (uint64(lease) < m.limit || m.limit == 0) {
		m.limit = uint64(lease)
	}
	if m.limit == 0 {
		m.limit = math.MaxUint64
	}
}

func (m *deviceMemory) inUse() uint64 { return m.used.Load() }

// reserve adds size bytes if the limit allows.
func (m *deviceMemory) reserve(size uint64) bool {
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

// add counts size bytes that are allocated already.
func (m *deviceMemory) add(size uint64) { m.used.Add(size) }

func (m *deviceMemory) release(size uint64) { m.used.Add(-size) }
