package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is the file in a data folder that is locked while a node runs with the folder. It contains
// the node's process id.
const lockFile = "lock"

// ErrLocked is the error of locking a folder with which another process runs.
var ErrLocked = errors.New("a node runs with this folder")

// A Lock keeps a data folder from other nodes. It ends with the process, or with Close.
type Lock struct{ file *os.File }

// Close unlocks the folder.
func (l *Lock) Close() error { return l.file.Close() }

const (
	// lockAttempts and lockPause outlast the moment for which InUse holds the lock.
	lockAttempts = 5
	lockPause    = 10 * time.Millisecond
)

// Acquire locks a data folder for this process. It returns ErrLocked if another process has it.
func Acquire(path string) (*Lock, error) {
	file, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for range lockAttempts {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause)
	}
	if err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	// The process id is for people who look for the process.
	_ = file.Truncate(0)
	_, _ = file.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	return &Lock{file}, nil
}

// InUse reports whether a process runs with the data folder: a node, from its start to its end.
func InUse(path string) bool {
	file, err := os.Open(filepath.Join(path, lockFile))
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
