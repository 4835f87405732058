// Package memfd creates sealed memory files, and verifies the seals of files that other processes
// pass.
//
// A process that maps a file of another process relies on its size: an access to a page that was
// cut off ends the process with SIGBUS. The kernel's seals rule that out (memfd_create(2),
// fcntl(2)).
package memfd

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

const (
	// sizeSeals are the seals required of memory that two processes map.
	sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	// writeSeals are the seals forbidden on memory that both processes write to.
	writeSeals = unix.F_SEAL_WRITE | unix.F_SEAL_FUTURE_WRITE
)

// New returns a memory file of size bytes, all zero, whose size can't change. name is shown in
// /proc. The caller closes the file.
func New(name string, size int64) (*os.File, error) {
	return create(name, sizeSeals, func(f *os.File) error { return f.Truncate(size) })
}

// NewImmutable returns a memory file with the content that write has written to it, which no
// process can change. write must not map the file for writing. The caller closes the file.
func NewImmutable(name string, write func(*os.File) error) (*os.File, error) {
	return create(name, sizeSeals|unix.F_SEAL_WRITE, write)
}

func create(name string, seals int, write func(*os.File) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err = write(f); err == nil {
		err = seal(f, seals|unix.F_SEAL_SEAL, time.Sleep)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	return f, nil
}

// seal adds seals to a file. The kernel refuses F_SEAL_WRITE with EBUSY while it holds a reference to
// a page itself, for instance while it moves the page on a busy machine: mm/memfd.c,
// memfd_wait_for_pins, which waits for 150 ms only. seal tries for 1 s at least.
func seal(f *os.File, seals int, wait func(time.Duration)) error {
	for delay := time.Millisecond; ; delay *= 2 {
		_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
		if !errors.Is(err, unix.EBUSY) || delay > time.Second {
			return err
		}
		wait(delay)
	}
}

// VerifyShared verifies that a file passed by another process is memory that this process may map
// and write to without a fault, and returns its size in bytes. The error is of kind
// outboard.Protocol if the file can change its size, can't be written to, or has huge pages, which
// the other process could free: an access faults when the machine has no other one.
func VerifyShared(f *os.File) (int64, error) {
	seals, err := sealsOf(f)
	switch {
	case err != nil:
		return 0, err
	case seals&sizeSeals != sizeSeals:
		return 0, outboard.Errorf(outboard.Protocol, "", "the file is not sealed against a change of size")
	case seals&writeSeals != 0:
		return 0, outboard.Errorf(outboard.Protocol, "", "the file is sealed against writing")
	}
	huge, err := hasHugePages(f)
	if err != nil {
		return 0, err
	}
	if huge {
		return 0, outboard.Errorf(outboard.Protocol, "", "the file has huge pages")
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// hasHugePages reports whether a file is in hugetlbfs.
func hasHugePages(f *os.File) (bool, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var fs unix.Statfs_t
	var failure error
	if err := raw.Control(func(fd uintptr) { failure = unix.Fstatfs(int(fd), &fs) }); err != nil {
		return false, err
	}
	return fs.Type == unix.HUGETLBFS_MAGIC, failure
}

// Verify verifies that a file passed by another process is memory, sealed or not: reading a pipe or
// a device could block for ever. The error is of kind outboard.Protocol if it is not.
func Verify(f *os.File) error {
	_, err := sealsOf(f)
	return err
}

// sealsOf returns the seals of a file, and leaves its blocking mode unchanged.
func sealsOf(f *os.File) (seals int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var refusal error
	if err := raw.Control(func(fd uintptr) { seals, refusal = unix.FcntlInt(fd, unix.F_GET_SEALS, 0) }); err != nil {
		return 0, err
	}
	if refusal != nil {
		return 0, outboard.Errorf(outboard.Protocol, "", "the file is not memory that can be sealed: %w", refusal)
	}
	return seals, nil
}
