package lend

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/outboard-run/outboard"
)

// caches are the folders in which drivers keep compiled kernels: one for each holder and
// program, since what a kernel writes there runs in later sessions. Each is bounded; the
// least recently used ones are removed when there are too many.
type caches struct {
	dir   string
	limit int64 // bytes of one cache
	uids  uidRange

	mu   sync.Mutex
	used map[string]int // sessions that use a cache, by its name
}

// maxCaches is how many caches are kept.
const maxCaches = 128

// uidRange is a range of users that workers of a node that is root become, one for each
// cache: sessions of other programs can't read or signal each other. 0: none.
type uidRange struct{ first, count int }

// cacheName is the name of a program's cache. It is a hash: the parts come from peers.
func cacheName(lease outboard.Lease) string {
	sum := sha256.Sum256([]byte(string(lease.Holder) + "\x00" + lease.Program))
	return hex.EncodeToString(sum[:16])
}

// acquire makes or reuses the cache of a lease's program and returns its folder and owner.
func (c *caches) acquire(lease outboard.Lease) (dir string, uid int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cacheName(lease)
	dir = filepath.Join(c.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", 0, err
	}
	if uid, err = c.owner(dir); err != nil {
		return "", 0, err
	}
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil {
		return "", 0, err
	}
	c.used[name]++
	return dir, uid, nil
}

// overfull returns the folders of the caches in use that exceed twice their limit.
func (c *caches) overfull() []string {
	c.mu.Lock()
	var dirs []string
	for name := range c.used {
		dirs = append(dirs, filepath.Join(c.dir, name))
	}
	c.mu.Unlock()
	return slices.DeleteFunc(dirs, func(dir string) bool { return sizeOf(dir) <= 2*c.limit })
}

// owner returns the user that owns a cache, and gives a new cache a user that no other
// cache has. It empties a cache of another kind of user, from a time when workers were
// isolated otherwise: its files are out of the worker's reach.
func (c *caches) owner(dir string) (int, error) {
	uid := ownerOf(dir)
	switch {
	case c.uids.count == 0 && (uid == os.Geteuid() || c.used[filepath.Base(dir)] > 0):
		return 0, nil
	case c.uids.count > 0 && c.uids.contains(uid):
		return uid, nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil || c.uids.count == 0 {
		return 0, err
	}
	taken := map[int]bool{}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		taken[ownerOf(filepath.Join(c.dir, e.Name()))] = true
	}
	for uid := c.uids.first; c.uids.contains(uid); uid++ {
		if !taken[uid] {
			return uid, os.Lchown(dir, uid, uid)
		}
	}
	return 0, outboard.Errorf(outboard.Exhausted, "session", "all %d users of the node's range have a cache", c.uids.count)
}

func (r uidRange) contains(uid int) bool { return uid >= r.first && uid < r.first+r.count }

func ownerOf(path string) int {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return int(stat.Uid)
}

// release ends one use of a cache. The last one shrinks it to its limit, and removes
// caches beyond maxCaches.
func (c *caches) release(lease outboard.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := cacheName(lease)
	if c.used[name]--; c.used[name] > 0 {
		return
	}
	delete(c.used, name)
	shrink(filepath.Join(c.dir, name), c.limit)
	c.prune()
}

// prune removes the least recently used caches beyond maxCaches.
func (c *caches) prune() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	idle := slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return c.used[e.Name()] > 0 })
	slices.SortFunc(idle, func(a, b fs.DirEntry) int { return modified(a).Compare(modified(b)) })
	for _, e := range idle[:max(len(idle)-maxCaches, 0)] {
		_ = os.RemoveAll(filepath.Join(c.dir, e.Name()))
	}
}

func modified(e fs.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// shrink removes the oldest entries of a folder until at most limit bytes are left. The
// entries are what drivers make: a folder for each program.
func shrink(dir string, limit int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	total := sizeOf(dir)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return modified(a).Compare(modified(b)) })
	for _, e := range entries {
		if total <= limit {
			return
		}
		path := filepath.Join(dir, e.Name())
		total -= sizeOf(path)
		_ = os.RemoveAll(path)
	}
}

// sizeOf is what a file or folder takes on the disk. It follows no links.
func sizeOf(path string) (total int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // removed meanwhile
		}
		if info, err := e.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				total += stat.Blocks * 512
			}
		}
		return nil
	})
	return total
}
