package artifact

import (
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// The space of the store's disk that files leave free: other parts of the node write there and must
// not fail, such as the pool's state, and files come from peers, ranks of training jobs and users.
const (
	maxKeptFree  = 256 << 20
	keptFreePart = 32 // of a small disk, one part of so many
	// spaceStep is how many bytes are written between two checks of the free space.
	spaceStep = 1 << 20
)

// A spaceReader fails when the disk of a folder, to which its content is written, has no space left
// but the part that is kept free, and what is promised to other files that are being written.
type spaceReader struct {
	r        io.Reader
	dir      string
	promised *atomic.Int64 // bytes, to all files of the store
	own      int64         // bytes of promised
	left     int           // bytes until the next check
}

// Read implements io.Reader.
func (s *spaceReader) Read(p []byte) (int, error) {
	if s.left <= 0 {
		if err := s.promise(); err != nil {
			return 0, err
		}
	}
	n, err := s.r.Read(p)
	s.left -= n
	return n, err
}

// promise promises a step of space, in place of the last one, which the disk's free space no longer has.
func (s *spaceReader) promise() error {
	total := s.promised.Add(spaceStep - s.own)
	s.own, s.left = spaceStep, spaceStep
	free, kept, err := Space(s.dir)
	if err != nil || free-kept >= total {
		return err
	}
	return errFull(free, kept)
}

// release ends the promise.
func (s *spaceReader) release() { s.promised.Add(-s.own) }

// CheckSpace returns an error in whose chain is syscall.ENOSPC when the disk of a folder has no space
// for so many bytes beside what is kept free.
func CheckSpace(dir string, bytes int64) error {
	free, kept, err := Space(dir)
	if err != nil || free > kept && free-kept >= max(bytes, 0) {
		return err
	}
	if bytes > 0 {
		return outboard.Errorf(outboard.Exhausted, "", "%v are needed, and the disk of %s has %v left, of which %v stay free: free space on it (%w)",
			outboard.Bytes(bytes), dir, outboard.Bytes(free), outboard.Bytes(kept), syscall.ENOSPC)
	}
	return errFull(free, kept)
}

func errFull(free, kept int64) error {
	return outboard.Errorf(outboard.Exhausted, "", "the disk of the node's data folder has %v left, of which %v stay free for the pool's state: free space on it (%w)",
		outboard.Bytes(free), outboard.Bytes(kept), syscall.ENOSPC)
}

// Space returns the free bytes of the disk of a folder, and how many of them files leave free. A file
// system that does not tell its size has space for everything.
func Space(dir string) (free, kept int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("free space of the disk of %s: %w", dir, err)
	}
	if s.Blocks == 0 {
		return math.MaxInt64, 0, nil
	}
	blocks := func(n uint64) int64 { return int64(n) * s.Bsize } //nolint:gosec // a disk has less than 2^63 bytes
	return blocks(s.Bavail), min(maxKeptFree, blocks(s.Blocks)/keptFreePart), nil
}
