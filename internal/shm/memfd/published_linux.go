package memfd

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// NewPublished returns a memory file of size bytes, all zero, that other processes can only read:
// memory is its one writable mapping, which the caller unmaps with [Unmap]. The caller closes the
// file. It needs Linux 5.1 (F_SEAL_FUTURE_WRITE).
func NewPublished(name string, size int) (f *os.File, memory []byte, err error) {
	f, err = create(name, sizeSeals|unix.F_SEAL_FUTURE_WRITE, func(f *os.File) error {
		if err := f.Truncate(int64(size)); err != nil {
			return err
		}
		var failed error
		memory, failed = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return failed
	})
	if err != nil {
		Unmap(memory)
		return nil, nil, err
	}
	return f, memory, nil
}

// MapPublished maps the memory of NewPublished in another process, for reading. The caller unmaps it
// with Unmap. The error is of kind outboard.Protocol if the file has not that size, or can change it.
func MapPublished(f *os.File, size int) ([]byte, error) {
	seals, err := sealsOf(f)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if seals&sizeSeals != sizeSeals || info.Size() != int64(size) {
		return nil, outboard.Errorf(outboard.Protocol, "", "the file is not memory of %d bytes that is sealed against a change of size", size)
	}
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
}

// Unmap unmaps memory; nil is no memory.
func Unmap(memory []byte) {
	if memory != nil {
		_ = unix.Munmap(memory)
	}
}
