package ipc

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// seals make a file of memory immutable.
const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// NewFile returns a sealed file of memory with a content, named for those who look into /proc.
// The caller closes it.
func NewFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(content); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	return f, nil
}

// ReadFile reads a file that another process has passed, at most limit bytes of it. It refuses
// anything but memory, because a pipe or a device could block the reader for ever.
func ReadFile(f *os.File, limit int64) ([]byte, error) {
	const op = "local protocol"
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var sealing error
	if err := raw.Control(func(fd uintptr) { _, sealing = unix.FcntlInt(fd, unix.F_GET_SEALS, 0) }); err != nil {
		return nil, err
	}
	if sealing != nil {
		return nil, outboard.Errorf(outboard.Protocol, op, "a file that came along is not memory: %w", sealing)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, outboard.Errorf(outboard.Exhausted, op, "a file of %d bytes came along, and %d are allowed", info.Size(), limit)
	}
	content := make([]byte, info.Size())
	if _, err := f.ReadAt(content, 0); err != nil && err != io.EOF { //nolint:errorlint // ReadAt returns it bare
		return nil, err
	}
	return content, nil
}
