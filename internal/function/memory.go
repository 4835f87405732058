package function

import (
	"github.com/tetratelabs/wazero/experimental"

	"github.com/outboard-run/outboard/internal/function/image"
	"github.com/outboard-run/outboard/internal/function/optimize"
)

// A memory is the linear memory of one instance, in a range that never moves.
//
// The engine asks it for every change of size. Two of its habits are used, and
// tested, because they belong to the version that go.mod names: the slice may be
// longer than what was asked for, and one that is shorter shrinks the memory.
type memory struct {
	space   *image.Range
	limit   int         // bytes
	size    int         // bytes now
	least   int         // bytes of the image
	yield   func() bool // answers optimize.Yield; false if the module really wants that size
	back    bool        // the next change is the way back to least
	refused bool        // growth was refused in this call
}

// Allocate gives the engine this memory, whatever it has in mind.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate changes the size. It returns nil to refuse.
func (m *memory) Reallocate(size uint64) []byte {
	switch {
	case size == optimize.Yield:
		m.refused = !m.yield() || m.refused
		return nil
	case m.back:
		m.size = m.least
	case size > uint64(m.limit):
		m.refused = true
		return nil
	default:
		m.size = max(int(size), m.least)
	}
	return m.space.Bytes()[:m.size:m.size]
}

// Free does nothing: the range belongs to the slot.
func (m *memory) Free() {}
