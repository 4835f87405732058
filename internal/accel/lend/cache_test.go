package lend

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

func leaseOf(holder outboard.NodeID, program string) outboard.Lease {
	return outboard.Lease{Grant: outboard.Grant{Holder: holder, Program: program}}
}

// A program's cache is its own: another program of the same holder, or the same program of
// another one, has another folder and, as far as the node can give one, another user.
func TestCachesAreSeparate(t *testing.T) {
	c := caches{dir: t.TempDir(), limit: 1 << 20, used: map[string]int{}}
	if os.Geteuid() == 0 {
		c.uids = uidRange{0x70000000, 16}
	}
	dirs, uids := map[string]bool{}, map[int]bool{}
	for _, lease := range []outboard.Lease{leaseOf("dinghy", "ffmpeg"), leaseOf("dinghy", "hashcat"), leaseOf("raft", "ffmpeg"), leaseOf("..", "../../x")} {
		dir, uid, err := c.acquire(lease)
		if err != nil {
			t.Fatal(err)
		}
		again, sameUID, err := c.acquire(lease)
		if err != nil || again != dir || sameUID != uid {
			t.Errorf("a second session has %s of %d, %v, want %s of %d", again, sameUID, err, dir, uid)
		}
		if filepath.Dir(dir) != c.dir {
			t.Errorf("%s lies outside of %s", dir, c.dir)
		}
		dirs[dir], uids[uid] = true, true
	}
	if len(dirs) != 4 || os.Geteuid() == 0 && len(uids) != 4 {
		t.Errorf("4 programs have %d folders and %d users", len(dirs), len(uids))
	}
}

// What sessions leave in caches is bounded, in each and in sum.
func TestCachesAreBounded(t *testing.T) {
	c := caches{dir: t.TempDir(), limit: 1 << 20, used: map[string]int{}}
	start := time.Now().Add(-time.Hour)
	for i := range maxCaches + 10 {
		lease := leaseOf("dinghy", fmt.Sprint(i))
		dir, _, err := c.acquire(lease)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			for n := range 8 {
				path := filepath.Join(dir, fmt.Sprint("kernel", n))
				if err := os.WriteFile(path, make([]byte, 512<<10), 0o600); err != nil {
					t.Fatal(err)
				}
				at := start.Add(time.Duration(n) * time.Minute)
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
			}
			if over := c.overfull(); len(over) != 1 || over[0] != dir {
				t.Errorf("4 MiB in a cache of 1 MiB: over the limit are %v", over)
			}
		}
		c.release(lease)
		if i == 0 {
			if size := sizeOf(dir); size > c.limit+8192 {
				t.Errorf("%d bytes are left, want at most %d", size, c.limit)
			}
			if _, err := os.Stat(filepath.Join(dir, "kernel7")); err != nil {
				t.Errorf("the newest entry was removed: %v", err)
			}
		}
	}
	left, err := os.ReadDir(c.dir)
	if err != nil || len(left) > maxCaches {
		t.Errorf("%d caches are left, want at most %d (%v)", len(left), maxCaches, err)
	}
}
