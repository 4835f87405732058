package opencl

import (
	"errors"
	"io"
	"math/bits"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// hostMemory reserves memory of this process for the client's transfers, commands and objects, and
// waits for commands to complete when there is too little.
type hostMemory struct {
	client  *client
	budget  *budget
	staging *staging
	memory  *deviceMemory
	events  *events
	queues  *queues

	searched time.Time // when completed commands were last searched for memory
}

// reserve reserves n bytes for the client, and waits for the device when that can help. It reports
// false when the call must fail.
func (h *hostMemory) reserve(n int64) bool {
	for tries := 0; ; tries++ {
		if h.budget.reserve(n) {
			return true
		}
		h.staging.trim()
		if h.budget.reserve(n) {
			return true
		}
		if tries > 0 || n > h.budget.limit || !h.waitForCommands() {
			return false
		}
	}
}

// waitForCommands waits for all commands, so that their memory is freed. It reports false without
// waiting when they depend on the client.
func (h *hostMemory) waitForCommands() bool {
	if len(h.events.unresolved) > 0 {
		return false
	}
	h.queues.drain()
	h.client.fail(h.events.synchronize())
	return true
}

// searchEvery is the shortest time between two searches for completed commands.
const searchEvery = 20 * time.Millisecond

// stage returns staging memory. It frees what can be freed, and waits for the device when that
// can help; nil means that there is none.
func (h *hostMemory) stage(size int) []byte {
	if b := h.staging.get(size); b != nil {
		return b
	}
	// A long list of blocked commands is not searched for every further request.
	if now := time.Now(); now.Sub(h.searched) > searchEvery {
		h.searched = now
		h.client.fail(h.events.reportCompleted())
		if b := h.staging.get(size); b != nil {
			return b
		}
	}
	if int64(size) > h.budget.limit || !h.waitForCommands() {
		return nil
	}
	return h.staging.get(size)
}

// gatherBulk copies the message's bulk to staging memory. It returns nil when there is none: then
// the call has failed.
func (h *hostMemory) gatherBulk(c *call) ([]byte, error) {
	if c.m.Bulk > h.memory.limit || c.m.Bulk > 1<<40 {
		c.fail(clAllocationFailure)
		return nil, nil
	}
	block := h.stage(int(c.m.Bulk))
	if block == nil {
		c.fail(clOutOfHostMemory)
		return nil, nil
	}
	for at := 0; ; {
		p, err := h.client.in.NextBulk()
		if errors.Is(err, io.EOF) {
			return block, nil
		}
		if err != nil {
			return nil, err
		}
		at += copy(block[at:], p)
	}
}

// staging is host memory for transfers that outlive their call. Blocks are reused, so that their
// pages stay mapped.
type staging struct {
	host *budget // it counts blocks in use and free blocks
	mu   sync.Mutex
	free map[int][][]byte
}

const (
	smallestBlock = 4 << 10
	// largestKept is the largest block that is kept: a larger transfer takes so long that fresh
	// pages do not matter.
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
	if !s.host.reserve(int64(class)) {
		s.drop()
		if !s.host.reserve(int64(class)) {
			return nil
		}
	}
	b, err := driver.Alloc(class)
	if err != nil {
		s.host.release(int64(class))
		return nil
	}
	return b[:size]
}

func (s *staging) put(b []byte) {
	class := cap(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if class > largestKept {
		s.host.release(int64(class))
		driver.Free(b)
		return
	}
	if s.free == nil {
		s.free = make(map[int][][]byte)
	}
	s.free[class] = append(s.free[class], b)
}

// trim returns the free blocks to the system.
func (s *staging) trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

func (s *staging) drop() {
	for class, blocks := range s.free {
		for _, b := range blocks {
			driver.Free(b)
			s.host.release(int64(class))
		}
		delete(s.free, class)
	}
}
