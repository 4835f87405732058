package node

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/datadir"
)

// SessionSocket is the name of the socket in the data folder on which programs
// of this machine open sessions with its devices.
const SessionSocket = "session.sock"

// poolDir is the folder of the node's identity and state in its data folder.
const poolDir = "pool"

// folder is a data folder, locked for this process.
type folder struct {
	path string
	lock *datadir.Lock
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
	lock, err := datadir.Acquire(path)
	switch {
	case errors.Is(err, datadir.ErrLocked):
		return nil, outboard.Errorf(outboard.Conflict, "", "a node runs with %s already: stop it with `outboard down`, or name another folder with --data", path)
	case err != nil:
		return nil, outboard.Errorf(outboard.Invalid, "", "%w: name another one with --data", err)
	}
	return &folder{path: path, lock: lock}, nil
}

func (f *folder) at(name string) string { return filepath.Join(f.path, name) }

// Close unlocks the folder.
func (f *folder) Close() error { return f.lock.Close() }
