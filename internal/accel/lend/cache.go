package lend

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/rmtree"
)

// caches are the folders of compiled kernels that drivers use: one per holder and program. A folder
// has generations, of which the latest one is the program's cache. Sessions can't change a
// generation, because kernels run in them. A compile step creates the next one. Each generation is
// bounded; the least recently used caches are removed when there are too many.
type caches struct {
	dir   string
	limit int64 // bytes of one generation
	uids  uidRange

	mu   sync.Mutex
	used map[string]int // users of a cache or a generation, by its path below dir
}

// cacheUse is a session's or a compile step's use of a generation of a cache.
type cacheUse struct {
	name string // of the cache
	dir  string // of the generation
	uid  int    // its owner; 0: this process's user
}

// draftName is the name of a generation that a compile step is creating. Only one compile step runs
// at a time.
const draftName = "draft"

// maxCaches bounds the kept caches.
const maxCaches = 128

// uidRange is a range of users for the workers of a node that runs as root, one per cache: sessions
// of other programs can't read or signal each other. 0: none.
type uidRange struct{ first, count int }

// cacheName returns the name of a program's cache. It is a hash: peers choose its parts.
func cacheName(lease outboard.Lease) string {
	sum := sha256.Sum256([]byte(string(lease.Holder) + "\x00" + lease.Program))
	return hex.EncodeToString(sum[:16])
}

// acquire creates or reuses the cache of a lease's program and returns its latest generation.
func (c *caches) acquire(lease outboard.Lease) (use cacheUse, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	use.name = cacheName(lease)
	base := filepath.Join(c.dir, use.name)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return use, err
	}
	if use.uid, err = c.owner(base); err != nil {
		return use, err
	}
	latest := c.latest(use.name)
	use.dir = filepath.Join(base, strconv.Itoa(latest))
	if latest == 0 {
		if err := os.MkdirAll(use.dir, 0o700); err != nil {
			return use, err
		}
		if err := use.own(use.dir); err != nil {
			return use, err
		}
	}
	now := time.Now()
	if err := os.Chtimes(base, now, now); err != nil {
		return use, err
	}
	c.used[use.name]++
	c.used[use.dir]++
	return use, nil
}

// own changes the owner of a new file or folder to the user of the cache's workers.
func (u *cacheUse) own(path string) error {
	if u.uid == 0 {
		return nil
	}
	return os.Lchown(path, u.uid, u.uid)
}

// latest returns the number of the latest generation of a cache. It removes unused earlier
// generations, and all other files.
func (c *caches) latest(name string) int {
	entries, err := os.ReadDir(filepath.Join(c.dir, name))
	if err != nil {
		return 0
	}
	latest := 0
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			latest = max(latest, n)
		}
	}
	for _, e := range entries {
		path := filepath.Join(c.dir, name, e.Name())
		if e.Name() != strconv.Itoa(latest) && c.used[path] == 0 {
			_ = rmtree.Remove(path)
		}
	}
	return latest
}

// draft copies a generation to a new one, to which a compile step adds kernels. The caller must end
// it by commit or discard.
func (c *caches) draft(from *cacheUse) (*cacheUse, error) {
	d := &cacheUse{name: from.name, uid: from.uid, dir: filepath.Join(c.dir, from.name, draftName)}
	c.mu.Lock()
	c.used[d.dir]++
	c.mu.Unlock()
	if err := errors.Join(rmtree.Remove(d.dir), copyTree(from.dir, d)); err != nil {
		c.discard(d)
		return nil, err
	}
	return d, nil
}

// copyTree copies regular files and folders to a draft, and skips all others.
func copyTree(from string, to *cacheUse) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to.dir, rel)
		switch {
		case e.IsDir():
			err = os.Mkdir(target, 0o700)
		case e.Type().IsRegular():
			err = copyFile(path, target)
		default:
			return nil
		}
		return errors.Join(err, to.own(target))
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// commit makes a draft the latest generation.
func (c *caches) commit(d *cacheUse) error {
	if shrink(d.dir, c.limit) {
		// Removed kernels are compiled again only if their recipes are not known.
		_ = os.Remove(filepath.Join(d.dir, control.RecipesFile))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := filepath.Join(c.dir, d.name, strconv.Itoa(c.latest(d.name)+1))
	err := os.Rename(d.dir, next)
	delete(c.used, d.dir)
	c.latest(d.name)
	return err
}

// discard removes a draft.
func (c *caches) discard(d *cacheUse) {
	_ = rmtree.Remove(d.dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.used, d.dir)
}

// owner returns the user that owns a cache, and assigns a new cache a user that no other cache has.
// It empties a cache whose owner is outside of the current range, from a time when workers were
// isolated in another way: workers can't access its files.
func (c *caches) owner(dir string) (int, error) {
	uid := ownerOf(dir)
	switch {
	case c.uids.count == 0 && (uid == os.Geteuid() || c.used[filepath.Base(dir)] > 0):
		return 0, nil
	case c.uids.count > 0 && c.uids.contains(uid):
		return uid, nil
	}
	if err := errors.Join(rmtree.Remove(dir), os.Mkdir(dir, 0o700)); err != nil || c.uids.count == 0 {
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

// release ends one use of a cache. The last one removes caches beyond maxCaches.
func (c *caches) release(use cacheUse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used[use.dir]--; c.used[use.dir] == 0 {
		delete(c.used, use.dir)
		c.latest(use.name)
	}
	if c.used[use.name]--; c.used[use.name] == 0 {
		delete(c.used, use.name)
		c.prune()
	}
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
		_ = rmtree.Remove(filepath.Join(c.dir, e.Name()))
	}
}

func modified(e fs.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// shrink removes the oldest entries of a folder until at most limit bytes are left. Drivers create
// the entries: a folder per program. It reports whether it removed any.
func shrink(dir string, limit int64) (shrunk bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	total := sizeOf(dir)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return modified(a).Compare(modified(b)) })
	for _, e := range entries {
		if total <= limit {
			break
		}
		path := filepath.Join(dir, e.Name())
		total -= sizeOf(path)
		_ = rmtree.Remove(path)
		shrunk = true
	}
	return shrunk
}

// entrySize is the least size that a file counts with: also an empty one needs an inode, of which a
// disk has a limited number, and time whenever the cache is copied.
const entrySize = 4 << 10

// sizeOf returns the disk space of a file or folder in bytes. It follows no links.
func sizeOf(path string) (total int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // removed meanwhile
		}
		if info, err := e.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				total += max(stat.Blocks*512, entrySize)
			}
		}
		return nil
	})
	return total
}
