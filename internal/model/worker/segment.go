package worker

import (
	"fmt"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

const (
	minSegment = 64 << 10
	// maxSegment bounds the inputs or the outputs of one call, in bytes.
	maxSegment = 4 << 30
	// alignment is the alignment of tensors in a segment: a cache line, and a vector of AVX-512.
	alignment = 64
)

// A segment is memory that two processes map.
type segment struct {
	id   uint64
	mem  []byte
	file *os.File // nil once the peer has mapped the memory
}

// newSegment creates memory of at least size bytes, rounded up to a power of two.
func newSegment(id uint64, size int) (*segment, error) {
	if size > maxSegment {
		return nil, outboard.Errorf(outboard.Exhausted, "", "tensors of %v: a call has %v at most", outboard.Bytes(size), outboard.Bytes(maxSegment))
	}
	size = 1 << bits.Len(uint(max(size, minSegment)-1))
	f, err := memfd.New("outboard-tensors", int64(size))
	if err != nil {
		return nil, err
	}
	s, err := openSegment(id, f)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return s, nil
}

// openSegment maps memory that the peer may have created. It refuses a file that is not a memory
// file or that could still shrink, so that no access faults. The segment owns f if there is no
// error.
func openSegment(id uint64, f *os.File) (*segment, error) {
	const op = "shared tensors"
	size, err := memfd.VerifyShared(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if size < 1 || size > maxSegment {
		return nil, outboard.Errorf(outboard.Protocol, op, "the file has %d bytes", size)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return &segment{id: id, mem: mem, file: f}, nil
}

// closeFile closes the descriptor; the memory stays mapped.
func (s *segment) closeFile() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// unmap unmaps the memory. It must be called only when no slice of the memory is in use.
func (s *segment) unmap() {
	s.closeFile()
	_ = unix.Munmap(s.mem)
	s.mem = nil
}

// align returns the next aligned offset.
func align(n int) int { return (n + alignment - 1) &^ (alignment - 1) }
