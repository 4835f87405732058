package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
		sweep(s.at(ingestDir), before, &done, func(string) bool { return false }),
		sweep(s.at(blobsDir), before, &done, func(name string) bool { return needed[algorithm+name] || named[algorithm+name] }),
	)
	return done, err
}

// Discard deletes those of some files that are unused: not in needed, not reachable from a name, and
// neither written nor found by Has after a time. Collect would delete them later.
func (s *Store) Discard(ctx context.Context, digests []string, needed map[string]bool, usedUntil time.Time) (Collected, error) {
	var done Collected
	unlock, err := s.lock(unix.LOCK_EX)
	if err != nil {
		return done, fmt.Errorf("discard artifacts: %w", err)
	}
	defer unlock()
	named, err := s.reachable(ctx)
	if err != nil {
		return done, fmt.Errorf("discard artifacts: %w", err)
	}
	for _, digest := range digests {
		name, err := hexOf(digest)
		if err != nil {
			return done, err
		}
		file := s.at(blobsDir + "/" + name)
		info, err := os.Stat(file)
		if err != nil || needed[digest] || named[digest] || info.ModTime().After(usedUntil) {
			continue // A missing file is discarded already.
		}
		if err := remove(file, info, &done); err != nil {
			return done, err
		}
	}
	return done, nil
}

// remove deletes a file, and counts it.
func remove(file string, info fs.FileInfo, done *Collected) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	done.Files++
	done.Bytes += info.Size()
	return nil
}

// sweep deletes the files of a folder that are not needed and were last used before a time.
func sweep(dir string, before time.Time, done *Collected, needed func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || needed(e.Name()) || info.ModTime().After(before) {
			continue
		}
		if err := remove(filepath.Join(dir, e.Name()), info, done); err != nil {
			return err
		}
	}
	return nil
}
