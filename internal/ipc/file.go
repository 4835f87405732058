package ipc

import (
	"errors"
	"io"
	"os"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

// NewFile returns a sealed memory file with a content; name is shown in /proc. The caller closes
// the file.
func NewFile(name string, content []byte) (*os.File, error) {
	return memfd.NewImmutable(name, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// ReadFile reads a file passed by another process, at most limit bytes of it. It refuses files that
// are not memory, because a pipe or a device could block the reader for ever.
func ReadFile(f *os.File, limit int64) ([]byte, error) {
	const op = "local protocol"
	if err := memfd.Verify(f); err != nil {
		return nil, outboard.Errorf(outboard.KindOf(err), op, "a message's file: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, outboard.Errorf(outboard.Exhausted, op, "a message has a file of %d bytes: %d are allowed", info.Size(), limit)
	}
	content := make([]byte, info.Size())
	if _, err := f.ReadAt(content, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return content, nil
}
