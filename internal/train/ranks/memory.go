package ranks

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

const (
	// maxMemory bounds the memory that one connection shares, in bytes.
	maxMemory = 64 << 30
	// seals keep a rank from taking memory away while the server works in it.
	seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
)

// mapMemory maps a rank's memory, a file that can't change its size.
func mapMemory(f *os.File) ([]byte, error) {
	have, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || have&seals != seals {
		return nil, outboard.Errorf(outboard.Invalid, "rank's memory", "the file is not sealed against a change of size")
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < 1 || info.Size() > maxMemory {
		return nil, outboard.Errorf(outboard.Invalid, "rank's memory", "%d bytes: want 1 to %d", info.Size(), int64(maxMemory))
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a rank's memory: %w", err)
	}
	return m, nil
}
