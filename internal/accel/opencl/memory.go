package opencl

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/driver"
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

// product multiplies sizes that a client sent; too large is the largest number.
func product(factors ...uint64) uint64 {
	p := uint64(1)
	for _, f := range factors {
		high, low := bits.Mul64(p, f)
		if high != 0 {
			return math.MaxUint64
		}
		p = low
	}
	return p
}

// staging is host memory for transfers that outlive their call. Blocks are used
// again, so that their pages stay mapped.
type staging struct {
	host *budget // blocks given out or kept count
	mu   sync.Mutex
	free map[int][][]byte
}

const (
	smallestBlock = 4 << 10
	// largestKept is the largest block that is kept: what is larger takes so
	// long to move that fresh pages do not count.
	largestKept = 64 << 20
)

func blockSize(size int) int {
	if size <= smallestBlock {
		return smallestBlock
	}
	return 1 << bits.Len(uint(size-1))
}

// get returns size bytes, or nil when the budget is spent.
func (s *staging) get(size int) []byte {
	class := blockSize(size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if blocks := s.free[class]; len(blocks) > 0 {
		b := blocks[len(blocks)-1]
		s.free[class] = blocks[:len(blocks)-1]
		return b[:size]
	}
	if !s.host.take(int64(class)) {
		s.drop()
		if !s.host.take(int64(class)) {
			return nil
		}
	}
	b, err := driver.Alloc(class)
	if err != nil {
		s.host.give(int64(class))
		return nil
	}
	return b[:size]
}

func (s *staging) put(b []byte) {
	class := cap(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if class > largestKept {
		s.host.give(int64(class))
		driver.Free(b)
		return
	}
	if s.free == nil {
		s.free = make(map[int][][]byte)
	}
	s.free[class] = append(s.free[class], b)
}

// trim gives the kept blocks back to the system.
func (s *staging) trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

func (s *staging) drop() {
	for class, blocks := range s.free {
		for _, b := range blocks {
			driver.Free(b)
			s.host.give(int64(class))
		}
		delete(s.free, class)
	}
}

// framePool lends frames to goroutines beside the dispatcher.
type framePool struct {
	mu   sync.Mutex
	free []*driver.Frame
}

func (p *framePool) get() *driver.Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		f := p.free[n-1]
		p.free = p.free[:n-1]
		return f
	}
	f, err := driver.NewFrame()
	if err != nil {
		return &driver.Frame{} // every request of it asks the system, and fails there
	}
	return f
}

func (p *framePool) put(f *driver.Frame) {
	f.Reset()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, f)
}
