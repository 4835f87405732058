package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Collected counts the files and bytes that Collect deleted.
type Collected struct {
	Files int
	Bytes int64
}

// Collect deletes unused files: files that are not in needed, that are not reachable from a name,
// and that have not been written, or found by Has, for minAge. It also deletes temporary files of
// that age, which interrupted writes have left.
func (s *Store) Collect(ctx context.Context, needed map[string]bool, minAge time.Duration) (Collected, error) {
	var done Collected
	unlock, err := s.lock(unix.LOCK_EX)
	if err != nil {
		return done, fmt.Errorf("collect artifacts: %w", err)
	}
	defer unlock()
	named, err := s.reachable(ctx)
	if err != nil {
		return done, fmt.Errorf("collect artifacts: %w", err)
	}
	before := time.Now().Add(-minAge)
	err = errors.Join(
		s.sweep(ingestDir, before, &done, func(string) bool { return false }),
		s.sweep(blobsDir, before, &done, func(name string) bool { return needed[algorithm+name] || named[algorithm+name] }),
	)
	return done, err
}

// sweep deletes the files of a folder that are not needed and were last used before a time.
func (s *Store) sweep(dir string, before time.Time, done *Collected, needed func(name string) bool) error {
	entries, err := os.ReadDir(s.at(dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || needed(e.Name()) || info.ModTime().After(before) {
			continue
		}
		err = os.Remove(s.at(dir + "/" + e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		done.Files++
		done.Bytes += info.Size()
	}
	return nil
}
