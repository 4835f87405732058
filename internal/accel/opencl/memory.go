package opencl

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard"
)

// Quota is a source of device memory that the sessions of a lease share.
type Quota interface {
	// Reserve requests more bytes, waits for the answer and returns the granted number: all of them
	// or 0. Only the dispatcher calls it.
	Reserve(bytes uint64) (granted uint64)
}

// deviceMemory counts the session's allocations on the device, within the lease's limit and, where
// several sessions share the lease, within the session's quota.
type deviceMemory struct {
	limit  uint64
	source Quota // nil: the session may use the whole limit
	used   atomic.Uint64

	mu     sync.Mutex
	quota  uint64
	wanted uint64 // bytes that the current allocation needs beyond used
}

// quotaUnit is the smallest amount that a session requests, so that small allocations don't wait.
const quotaUnit = 1 << 20

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

// reserve adds size bytes if the limit and the quota allow. Only the dispatcher calls it.
func (m *deviceMemory) reserve(size uint64) bool {
	if size > m.limit-min(m.used.Load(), m.limit) {
		return false
	}
	if m.source == nil {
		m.used.Add(size)
		return true
	}
	missing := m.missing(size)
	defer m.setWanted(0)
	// The quota that other sessions can return may be less than a unit.
	for _, bytes := range []uint64{max(missing, quotaUnit), missing} {
		if missing == 0 {
			break
		}
		// The answer is added by grant, in the order of the node's messages.
		if m.source.Reserve(bytes) == 0 && bytes > missing {
			continue
		}
		missing = m.missing(size)
		break
	}
	if missing > 0 {
		return false
	}
	m.used.Add(size)
	return true
}

// missing records that size bytes are wanted, and returns how many of them the quota lacks.
func (m *deviceMemory) missing(size uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = size
	need := m.used.Load() + size
	return need - min(need, m.quota)
}

func (m *deviceMemory) setWanted(size uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = size
}

// grant adds to the quota.
func (m *deviceMemory) grant(bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quota += bytes
}

// reclaim returns the part of the quota that is neither in use nor wanted.
func (m *deviceMemory) reclaim() (bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	need := min(m.used.Load()+m.wanted, m.quota)
	bytes = m.quota - need
	m.quota = need
	return bytes
}

// add counts size bytes that are allocated already.
func (m *deviceMemory) add(size uint64) { m.used.Add(size) }

func (m *deviceMemory) release(size uint64) { m.used.Add(-size) }
