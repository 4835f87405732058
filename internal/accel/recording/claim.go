package recording

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// errClaimed says that another process has claimed a folder.
var errClaimed = errors.New("another process uses the folder")

// claimFolder creates a folder for the files of a recording. It belongs to this process until the
// returned file is closed. A folder whose process was killed is emptied and claimed. It returns
// errClaimed if the process of an existing folder still runs.
func claimFolder(dir string) (*os.File, error) {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	created := err == nil
	lock, err := lockFolder(dir)
	if errors.Is(err, errors.ErrUnsupported) && created {
		return os.Open(dir) // A file system without locks: the folder's existence is the claim.
	}
	if err != nil {
		return nil, err
	}
	if err := emptyFolder(dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// lockFolder locks an existing folder. The system releases the lock at the end of the process.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(errClaimed, f.Close())
	case err != nil:
		return nil, errors.Join(&os.PathError{Op: "flock", Path: dir, Err: err}, f.Close())
	}
	// Its process may have removed the folder between the opening and the lock.
	locked, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if current, err := os.Lstat(dir); err != nil || !os.SameFile(locked, current) {
		return nil, errors.Join(errClaimed, f.Close())
	}
	return f, nil
}

// emptyFolder removes the files of a recording, and nothing else: a folder of the user's may have the
// name by chance.
func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() != draftName && filepath.Ext(e.Name()) != fileExt {
			return outboard.Errorf(outboard.Invalid, "trace", "%s is there already, and is no recording: name another file", dir)
		}
	}
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return err
}
