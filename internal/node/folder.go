package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/datadir"
)

// SessionSocket is the name of the socket in the data folder on which programs
// of this machine open sessions with its devices.
const SessionSocket = "session.sock"

// Names in a node's data folder, besides the workers' tmp and cache.
const (
	lockFile = "lock"
	poolDir  = "pool"
)

// folder is a data folder, locked for this process.
type folder struct {
	path string
	lock *os.File
}

// openFolder creates the folder if it does not exist, checks that it belongs to this user alone,
// and locks it. The lock ends with the process.
func openFolder(path string) (*folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "", "%w: name another one with --data", err)
	}
	if err := datadir.Check(path); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "", "%w: name another one with --data", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		_ = lock.Close()
		return nil, outboard.Errorf(outboard.Conflict, "", "a node runs with %s already: stop it with `outboard down`, or name another folder with --data", path)
	}
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	_ = lock.Truncate(0)
	_, _ = lock.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) at(name string) string { return filepath.Join(f.path, name) }

// Close unlocks the folder.
func (f *folder) Close() error { return f.lock.Close() }
