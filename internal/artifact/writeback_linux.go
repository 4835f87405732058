package artifact

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback makes the kernel write a part of a file to the disk without waiting for it: what is
// written while more is received needs no time at the end.
func startWriteback(f *os.File, at, size int64) {
	_ = unix.SyncFileRange(int(f.Fd()), at, size, unix.SYNC_FILE_RANGE_WRITE) // Sync reports errors
}
