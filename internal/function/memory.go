package function

import (
	"github.com/tetratelabs/wazero/experimental"

	"github.com/outboard-run/outboard/internal/function/image"
	"github.com/outboard-run/outboard/internal/function/optimize"
)

// memory is the linear memory of one instance, in a range that never moves.
//
// The engine calls it for every change of size. Two properties of the engine's version in go.mod
// are used, and tested: the slice may be longer than requested, and a shorter one shrinks the
// memory.
type memory struct {
	space     *image.Range
	limit     int         // bytes that the module can have
	total     int         // bytes that memory and files can have together
	size      int         // bytes now
	imageSize int         // bytes of the image
	files     int         // bytes of the call's temporary files
	yield     func() bool // answers optimize.Yield; false if the module really wants that size
	shrinking bool        // the next change is the way back to least
	refused   bool        // growth was refused in this call
}

// Allocate returns this memory, whatever sizes the engine names.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate changes the size. It returns nil to refuse.
func (m *memory) Reallocate(size uint64) []byte {
	switch {
	case size == optimize.Yield:
		m.refused = !m.yield() || m.refused
		return nil
	case m.shrinking:
		m.size = m.imageSize
	case size > uint64(m.limit) || size > uint64(m.total-m.files):
		m.refused = true
		return nil
	default:
		m.size = max(int(size), m.imageSize)
	}
	return m.space.Bytes()[:m.size:m.size]
}

// Free does nothing: the range belongs to the slot.
func (m *memory) Free() {}

// reserveFiles counts bytes of temporary files, unless they and the memory exceed the limit. A
// negative number releases bytes.
func (m *memory) reserveFiles(bytes int64) bool {
	if bytes > int64(m.total-m.size-m.files) {
		m.refused = true
		return false
	}
	m.files += int(bytes)
	return true
}
