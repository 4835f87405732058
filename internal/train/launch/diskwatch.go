package launch

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

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
		switch used := w.used(ctx); {
		case used >= tooDeep:
			return outboard.Errorf(outboard.Exhausted, "", "the disk of the ranks' folder has %v left, and more than %d folders in each other there, whose files are not counted: use fewer", outboard.Bytes(free), maxDepth)
		case used > reserve:
			return outboard.Errorf(outboard.Exhausted, "",
				"the disk of the ranks' folder has %v left, and their files take %v of it: write less, or have the node's operator set TMPDIR to a larger disk",
				outboard.Bytes(free), outboard.Bytes(used))
		}
		interval = countInterval
	}
}

// Limits of counting, for ranks may write any tree of files: it is read by batches of names, and the
// files below maxDepth folders count as tooDeep bytes.
const (
	nameBatch = 1024
	maxDepth  = 256
	tooDeep   = 1 << 60
)

// diskUse returns the bytes that files take on the disk, tooDeep or more if they can't be counted. Files
// that it can't read count nothing, since they may be removed meanwhile. It follows no link, and opens
// each folder from the one above it: the path of a file may be longer than the kernel reads.
func diskUse(ctx context.Context, dir string) int64 { return folderUse(ctx, unix.AT_FDCWD, dir, 0) }

func folderUse(ctx context.Context, parent int, name string, depth int) (used int64) {
	if depth > maxDepth {
		return tooDeep
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	folder := os.NewFile(uintptr(fd), name)
	defer folder.Close()
	for used < tooDeep && ctx.Err() == nil {
		names, err := folder.Readdirnames(nameBatch)
		for _, name := range names {
			if used < tooDeep {
				used += entryUse(ctx, fd, name, depth)
			}
		}
		if err != nil {
			break
		}
	}
	return used
}

// entryUse returns the bytes that an entry of a folder takes, with everything below it.
func entryUse(ctx context.Context, folder int, name string, depth int) int64 {
	var s unix.Stat_t
	if err := unix.Fstatat(folder, name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0
	}
	used := 512 * s.Blocks
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		used += folderUse(ctx, folder, name, depth+1)
	}
	return used
}
