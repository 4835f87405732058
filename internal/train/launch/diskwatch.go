package launch

import (
	"context"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// reserves is how many times the space that artifacts leave free ranks do: the node's state and
// artifacts, which are often on the same disk, must not be the first to find it full.
const reserves = 4

// The intervals at which the free space of the ranks' disk is checked: usually, and after their files
// were counted, which takes long if there are many.
const (
	diskInterval  = time.Second
	countInterval = 10 * time.Second
)

// A diskWatch watches the disk of the folder of ranks, whose size nothing else limits.
type diskWatch struct {
	// space returns the free bytes of the disk, and how many of them artifacts leave free.
	space func() (free, kept int64, err error)
	// used returns the bytes on the disk that the files of the folder take.
	used func(ctx context.Context) int64
}

// AwaitFullDisk waits until the disk of the folder of ranks is nearly full because of their files, which
// is an error, or until ctx ends.
func AwaitFullDisk(ctx context.Context, dir string) error {
	w := diskWatch{
		space: func() (int64, int64, error) { return artifact.Space(dir) },
		used:  func(ctx context.Context) int64 { return diskUse(ctx, dir) },
	}
	return w.await(ctx)
}

// await waits until the disk is nearly full and the files of the folder take more than what should be
// free, or until ctx ends.
func (w *diskWatch) await(ctx context.Context) error {
	interval := diskInterval
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
		interval = diskInterval
		free, kept, err := w.space()
		reserve := reserves * kept
		if err != nil || free >= reserve {
			continue
		}
		if used := w.used(ctx); used > reserve {
			return outboard.Errorf(outboard.Exhausted, "",
				"the disk of the ranks' folder has %v left, and their files take %v of it: write less, or have the node's operator set TMPDIR to a larger disk",
				outboard.Bytes(free), outboard.Bytes(used))
		}
		interval = countInterval
	}
}

// diskUse returns the bytes that files take on the disk. Files that it can't read count nothing, since
// they may be removed meanwhile.
func diskUse(ctx context.Context, dir string) int64 {
	used := int64(0)
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		if info, err := e.Info(); err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				used += 512 * s.Blocks
			}
		}
		return nil
	})
	return used
}
