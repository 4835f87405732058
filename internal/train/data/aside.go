package data

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/rmtree"
)

// asidePrefix begins the names of the folders that Restore writes beside the final ones.
const asidePrefix = ".outboard-restore-"

// makeAside returns a new folder in a parent folder, open and locked.
func makeAside(parent string) (*os.File, error) {
	for {
		name, err := os.MkdirTemp(parent, asidePrefix)
		if err != nil {
			return nil, err
		}
		folder, err := os.Open(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // Another process has removed it before it was locked.
		case err != nil:
			return nil, errors.Join(err, os.Remove(name))
		}
		// A file system without locks keeps what killed processes leave.
		_ = lock(folder)
		if isAt(folder, name) {
			return folder, nil
		}
		_ = folder.Close() // It was only read.
	}
}

// removeAbandoned removes the folders that makeAside has made in a folder and that no process has
// locked: their processes were killed. Those of other users, and what can't be removed, stay.
func removeAbandoned(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // MkdirTemp reports it.
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), asidePrefix) && e.IsDir() {
			removeUnlocked(filepath.Join(parent, e.Name()))
		}
	}
}

func removeUnlocked(name string) {
	folder, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer folder.Close()
	var stat unix.Stat_t
	if unix.Fstat(int(folder.Fd()), &stat) != nil || int(stat.Uid) != os.Geteuid() || lock(folder) != nil || !isAt(folder, name) {
		return
	}
	_ = rmtree.Remove(name) // The next Restore tries again.
}

// lock locks a folder until it is closed. It returns an error if another process has locked it.
func lock(folder *os.File) error { return unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// isAt reports whether a folder has a name.
func isAt(folder *os.File, name string) bool {
	own, err := folder.Stat()
	if err != nil {
		return false
	}
	at, err := os.Lstat(name)
	return err == nil && os.SameFile(own, at)
}
