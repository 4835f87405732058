package recording

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

// Store keeps the last trace of each program by its fingerprint, in a folder. It removes the oldest
// traces beyond its bounds.
type Store struct{ Dir string }

// The bounds of a store.
const (
	maxKept      = 64
	maxKeptBytes = 1 << 30
)

// Path returns the path of a program's trace. The error is fs.ErrNotExist if there is none.
func (s Store) Path(fingerprint string) (string, error) {
	path := filepath.Join(s.Dir, filepath.Base(fingerprint)+".trace")
	_, err := os.Stat(path)
	return path, err
}

// Put stores a copy of a program's trace. A trace that is larger than a quarter of the store is not
// kept.
func (s Store) Put(fingerprint, file string) error {
	info, err := os.Stat(file)
	if err != nil || info.Size() > maxKeptBytes/4 {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	draft, err := os.CreateTemp(s.Dir, "draft-*")
	if err != nil {
		return err
	}
	err = errors.Join(copyFile(draft, file), draft.Close())
	if err == nil {
		err = os.Rename(draft.Name(), filepath.Join(s.Dir, filepath.Base(fingerprint)+".trace"))
	}
	if err != nil {
		return errors.Join(err, os.Remove(draft.Name()))
	}
	return s.prune()
}

func copyFile(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}

// prune removes the oldest traces beyond the bounds, and drafts of processes that were killed.
func (s Store) prune() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	var kept []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil:
		case filepath.Ext(e.Name()) == ".trace":
			kept = append(kept, info)
		case time.Since(info.ModTime()) > time.Hour:
			_ = os.Remove(filepath.Join(s.Dir, e.Name()))
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int { return cmp.Compare(b.ModTime().UnixNano(), a.ModTime().UnixNano()) })
	var bytes outboard.Bytes
	for i, info := range kept {
		bytes += outboard.Bytes(info.Size())
		if i >= maxKept || bytes > maxKeptBytes {
			_ = os.Remove(filepath.Join(s.Dir, info.Name()))
		}
	}
	return nil
}
