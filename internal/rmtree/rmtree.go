// Package rmtree removes trees of files that foreign code has written. os.RemoveAll has a descriptor
// open for each level of a tree, and fails at a folder whose owner may not read it: so a deep tree
// takes all descriptors of this process, and is left behind, as is a folder without permissions.
package rmtree

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove removes path and everything below it, with a constant number of descriptors, in a time
// linear in the number of files. It follows no link below the folder of path, and returns nil if path
// does not exist.
func Remove(path string) error {
	path = filepath.Clean(path)
	parent, err := openFolder(unix.AT_FDCWD, filepath.Dir(path))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	defer parent.Close()
	return RemoveAt(parent, filepath.Base(path))
}

// RemoveAt removes the entry of a folder with a name, as Remove does.
func RemoveAt(parent *os.File, name string) error {
	if err := removeAt(int(parent.Fd()), name); err != nil {
		return &os.PathError{Op: "remove", Path: filepath.Join(parent.Name(), name), Err: err}
	}
	return nil
}

func removeAt(parent int, name string) error {
	removed, err := unlink(parent, name)
	if removed || err != nil {
		return err
	}
	folder, err := openOwned(parent, name)
	if err != nil {
		return err
	}
	t := tree{folder: folder}
	err = errors.Join(t.empty(), folder.Close())
	if failed := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); failed != nil && !errors.Is(failed, unix.ENOENT) {
		return errors.Join(failed, err)
	}
	return nil
}

// A tree is the uppermost folder that is removed. A folder below it that is not empty becomes empty
// by moving its folders up into the uppermost one, so no more than two are open.
type tree struct {
	folder *os.File
	moved  uint64 // names the folders that are moved
}

// batch is the number of names that are read at a time.
const batch = 1024

// empty removes the entries of the uppermost folder. It ends with the first error once no entry can
// be removed.
func (t *tree) empty() error {
	for {
		progress, first := false, error(nil)
		err := eachEntry(t.folder, func(name string) {
			switch err := t.remove(name); {
			case err == nil:
				progress = true
			case first == nil:
				first = err
			}
		})
		if err != nil || !progress {
			return errors.Join(first, err)
		}
	}
}

// eachEntry calls handle with the names of a folder's entries, from the first one on.
func eachEntry(folder *os.File, handle func(name string)) error {
	if _, err := folder.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		names, err := folder.Readdirnames(batch)
		for _, name := range names {
			handle(name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// remove removes an entry of the uppermost folder. Folders that it has are moved there.
func (t *tree) remove(name string) error {
	top := int(t.folder.Fd())
	removed, err := unlink(top, name)
	if removed || err != nil {
		return err
	}
	below, err := openOwned(top, name)
	if err != nil {
		return err
	}
	defer below.Close()
	var first error
	for pass := 0; ; pass++ {
		err := eachEntry(below, func(name string) {
			if err := t.liftOrRemove(int(below.Fd()), name); err != nil && first == nil {
				first = err
			}
		})
		// Reading may skip entries of a folder that changes, so it is read again.
		removed, failed := unlink(top, name)
		if removed || failed != nil || err != nil || first != nil || pass == maxPasses {
			return errors.Join(failed, err, first, notEmpty(removed))
		}
	}
}

// maxPasses bounds how often a folder is read that has entries again.
const maxPasses = 8

func notEmpty(removed bool) error {
	if removed {
		return nil
	}
	return unix.ENOTEMPTY
}

// liftOrRemove removes an entry of a folder below, or moves it into the uppermost folder if it is a
// folder that is not empty.
func (t *tree) liftOrRemove(below int, name string) error {
	removed, err := unlink(below, name)
	if removed || err != nil {
		return err
	}
	for {
		t.moved++
		switch err := t.lift(below, name, ".removed-"+strconv.FormatUint(t.moved, 10)); {
		case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.ENOTDIR): // the name is in use
		case errors.Is(err, unix.ENOENT):
			return nil
		default:
			return err
		}
	}
}

// lift moves a folder into the uppermost one. A folder that moves has to be writable.
func (t *tree) lift(below int, name, to string) error {
	top := int(t.folder.Fd())
	err := unix.Renameat(below, name, top, to)
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	if err := allow(below, name); err != nil {
		return err
	}
	return unix.Renameat(below, name, top, to)
}

// unlink removes an entry of a folder. removed is false, without an error, if it is a folder that is
// not empty.
func unlink(folder int, name string) (removed bool, err error) {
	err = unix.Unlinkat(folder, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	switch failed := unix.Unlinkat(folder, name, unix.AT_REMOVEDIR); {
	case failed == nil || errors.Is(failed, unix.ENOENT):
		return true, nil
	case errors.Is(failed, unix.ENOTEMPTY) || errors.Is(failed, unix.EEXIST):
		return false, nil
	case errors.Is(failed, unix.ENOTDIR):
		return false, err
	default:
		return false, failed
	}
}

// openOwned opens a folder to read it and to change its entries. It adds the permissions of its
// owner that are missing.
func openOwned(parent int, name string) (*os.File, error) {
	folder, err := openFolder(parent, name)
	if err == nil && unix.Faccessat(int(folder.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil {
		return folder, nil
	}
	if err == nil {
		_ = folder.Close()
	} else if !errors.Is(err, unix.EACCES) {
		return nil, err
	}
	if err := allow(parent, name); err != nil {
		return nil, err
	}
	return openFolder(parent, name)
}

// openFolder opens a folder, and no link to one.
func openFolder(parent int, name string) (*os.File, error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW
	if parent == unix.AT_FDCWD {
		flags &^= unix.O_NOFOLLOW // the caller chose it
	}
	fd, err := unix.Openat(parent, name, flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// allow gives a folder's owner all permissions. The entry may be replaced by a link at any time.
func allow(parent int, name string) error {
	err := unix.Fchmodat(parent, name, 0o700, unix.AT_SYMLINK_NOFOLLOW)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	// Linux before 6.6.
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return os.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700)
}
