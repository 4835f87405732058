package ranks

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

// maxMemory bounds the memory that one connection shares, in bytes.
const maxMemory = 64 << 30

// mapMemory maps a rank's memory, a file whose size can't change.
func mapMemory(f *os.File) ([]byte, error) {
	const op = "rank's memory"
	size, err := memfd.VerifyShared(f)
	if err != nil {
		return nil, outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	if size < 1 || size > maxMemory {
		return nil, outboard.Errorf(outboard.Invalid, op, "%d bytes: want 1 to %d", size, int64(maxMemory))
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a rank's memory: %w", err)
	}
	return m, nil
}

func unmap(b []byte) { _ = unix.Munmap(b) } // It was mapped.
