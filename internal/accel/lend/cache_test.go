package lend

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
)

func leaseOf(holder outboard.NodeID, program string) outboard.Lease {
	return outboard.Lease{Grant: outboard.Grant{Holder: holder, Program: program}}
}

func newCaches(t *testing.T) *caches {
	c := &caches{dir: t.TempDir(), limit: 1 << 20, used: map[string]int{}}
	if os.Geteuid() == 0 {
		c.uids = uidRange{0x70000000, 1 << 10}
	}
	return c
}

func acquire(t *testing.T, c *caches, lease outboard.Lease) cacheUse {
	t.Helper()
	use, err := c.acquire(lease)
	if err != nil {
		t.Fatal(err)
	}
	return use
}

// A program's cache is its own: another program of the same holder, or the same program of
// another one, has another folder and, as far as the node can give one, another user.
func TestCachesAreSeparate(t *testing.T) {
	c := newCaches(t)
	dirs, uids := map[string]bool{}, map[int]bool{}
	for _, lease := range []outboard.Lease{leaseOf("dinghy", "ffmpeg"), leaseOf("dinghy", "hashcat"), leaseOf("raft", "ffmpeg"), leaseOf("..", "../../x")} {
		use, again := acquire(t, c, lease), acquire(t, c, lease)
		if again != use {
			t.Errorf("a second session has %v, want %v", again, use)
		}
		if filepath.Dir(filepath.Dir(use.dir)) != c.dir {
			t.Errorf("%s lies outside of %s", use.dir, c.dir)
		}
		dirs[use.dir], uids[use.uid] = true, true
	}
	if len(dirs) != 4 || os.Geteuid() == 0 && len(uids) != 4 {
		t.Errorf("4 programs have %d folders and %d users", len(dirs), len(uids))
	}
}

// A compile step adds to a copy: sessions keep the generation that they began with, which is
// removed when the last of them has ended, and later ones get the new one.
func TestGenerations(t *testing.T) {
	c := newCaches(t)
	lease := leaseOf("dinghy", "ffmpeg")
	first := acquire(t, c, lease)
	write(t, filepath.Join(first.dir, "sub", "kernel"), 10)
	if err := os.Symlink("/etc/shadow", filepath.Join(first.dir, "link")); err != nil {
		t.Fatal(err)
	}
	d, err := c.draft(&first)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d.dir, "more"), 10)
	during := acquire(t, c, lease)
	if during.dir != first.dir {
		t.Errorf("a session during the compile step has %s, want %s", during.dir, first.dir)
	}
	c.release(during)
	if err := c.commit(d); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, c, lease)
	for _, name := range []string{"sub/kernel", "more"} {
		if info, err := os.Stat(filepath.Join(second.dir, name)); err != nil || second.uid != ownerOf(filepath.Join(second.dir, "sub", "kernel")) {
			t.Errorf("%s in the next generation: %v, %v", name, info, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(second.dir, "link")); err == nil {
		t.Error("a link was copied")
	}
	if _, err := os.Stat(filepath.Join(first.dir, "more")); err == nil {
		t.Error("the generation of a session that runs was changed")
	}
	c.release(first)
	if _, err := os.Stat(first.dir); err == nil {
		t.Error("a generation that nobody uses is left")
	}
	if d, err = c.draft(&second); err != nil {
		t.Fatal(err)
	}
	c.discard(d)
	c.release(second)
	if left, err := os.ReadDir(filepath.Dir(second.dir)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v, want one generation", left, err)
	}
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What compile steps leave in caches is bounded, in each and in sum.
// Files without content count: their number is bounded, too.
func TestEmptyFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	const files = 100
	for i := range files {
		write(t, filepath.Join(dir, "program", strconv.Itoa(i)), 0)
	}
	if size := sizeOf(dir); size < files*entrySize {
		t.Errorf("%d empty files have %d bytes", files, size)
	}
	if !shrink(dir, files*entrySize/2) {
		t.Error("they are within the bound")
	}
}

func TestCachesAreBounded(t *testing.T) {
	c := newCaches(t)
	start := time.Now().Add(-time.Hour)
	for i := range maxCaches + 10 {
		use := acquire(t, c, leaseOf("dinghy", fmt.Sprint(i)))
		if i == 0 {
			d, err := c.draft(&use)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(d.dir, control.RecipesFile), 10)
			for n := range 8 {
				path := filepath.Join(d.dir, fmt.Sprint("kernel", n))
				write(t, path, 512<<10)
				at := start.Add(time.Duration(n) * time.Minute)
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.commit(d); err != nil {
				t.Fatal(err)
			}
			next := acquire(t, c, leaseOf("dinghy", fmt.Sprint(i)))
			if size := sizeOf(next.dir); size > c.limit+8192 {
				t.Errorf("%d bytes are left, want at most %d", size, c.limit)
			}
			if _, err := os.Stat(filepath.Join(next.dir, "kernel7")); err != nil {
				t.Errorf("the newest entry was removed: %v", err)
			}
			if _, err := os.Stat(filepath.Join(next.dir, control.RecipesFile)); err == nil {
				t.Error("entries that were removed are still known")
			}
			c.release(next)
		}
		c.release(use)
	}
	left, err := os.ReadDir(c.dir)
	if err != nil || len(left) > maxCaches {
		t.Errorf("%d caches are left, want at most %d (%v)", len(left), maxCaches, err)
	}
}
