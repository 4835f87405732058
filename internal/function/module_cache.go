package function

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/internal/function/optimize"
)

// moduleCache keeps rewritten modules in files: rewriting a large module takes part of a second,
// and a module that was checked is deployed next, and again at each start. Without a folder nothing
// is kept.
type moduleCache struct {
	dir string
	log *slog.Logger
}

// cachePrefix begins the names of the folders of rewritten modules.
const cachePrefix = "rewritten-"

// openModuleCache opens the folder of this build of the program, because another build may rewrite
// differently, and removes the folders of other builds.
func openModuleCache(parent string, log *slog.Logger) (*moduleCache, error) {
	if parent == "" {
		return &moduleCache{log: log}, nil
	}
	build, err := ownBuild()
	if err != nil {
		return nil, fmt.Errorf("rewritten modules: %w", err)
	}
	k := &moduleCache{dir: filepath.Join(parent, cachePrefix+build), log: log}
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rewritten modules: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), cachePrefix) && e.Name() != cachePrefix+build {
			_ = os.RemoveAll(filepath.Join(parent, e.Name())) // it is tried again at the next start
		}
	}
	return k, nil
}

// ownBuild identifies the program's file by its status: a confined process may not read it.
func ownBuild() (string, error) {
	s, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	own, ok := s.Sys().(*syscall.Stat_t)
	if !ok {
		return "", errors.New("the program's file has no number")
	}
	return fmt.Sprintf("%x-%x-%x", own.Ino, own.Size, own.Ctim.Nano()), nil
}

// load returns a rewritten module from the cache, or rewrites it.
func (k *moduleCache) load(file []byte, unmetered bool) (*optimize.Result, error) {
	o := optimize.Options{Unmetered: unmetered}
	if k.dir == "" {
		return optimize.Module(file, o)
	}
	name := filepath.Join(k.dir, fmt.Sprintf("%x", sha256.Sum256(file)))
	if unmetered {
		name += "-unmetered"
	}
	if r, err := readCached(name); err == nil {
		return r, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("a rewritten module can't be read, and is rewritten again", "error", err)
	}
	r, err := optimize.Module(file, o)
	if err != nil {
		return nil, err
	}
	if err := writeCached(name, r); err != nil {
		k.log.Warn("a rewritten module can't be kept", "error", err)
	}
	return r, nil
}

// readCached reads a file of writeCached: a checksum before the rest.
func readCached(name string) (*optimize.Result, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	sum, b := b[:min(len(b), sha256.Size)], b[min(len(b), sha256.Size):]
	if want := sha256.Sum256(b); !bytes.Equal(sum, want[:]) {
		return nil, fmt.Errorf("%s: its checksum is wrong", name)
	}
	r := &optimize.Result{}
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// writeCached writes a file atomically.
func writeCached(name string, r *optimize.Result) error {
	b := bytes.NewBuffer(make([]byte, sha256.Size, len(r.Code)+len(r.Code)/2))
	if err := gob.NewEncoder(b).Encode(r); err != nil {
		return err
	}
	sum := sha256.Sum256(b.Bytes()[sha256.Size:])
	copy(b.Bytes(), sum[:])
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// unusedFor is how long a file of the cache may stay unread. File systems record a read once a day
// at best; where they don't, a file of that age is created anew.
const unusedFor = 30 * 24 * time.Hour

// removeUnused removes files that were not used for long from a cache.
func removeUnused(dir string, now time.Time) error {
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil && now.Sub(lastUse(info)) > unusedFor {
			err = os.Remove(name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another runtime has removed it
		}
		return err
	})
}

func lastUse(f fs.FileInfo) time.Time {
	used := f.ModTime()
	if own, ok := f.Sys().(*syscall.Stat_t); ok {
		if read := time.Unix(own.Atim.Unix()); read.After(used) {
			used = read
		}
	}
	return used
}
