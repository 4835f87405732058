package launch

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// Ranks end when their disk is nearly full because of their files, and not because of others.
func TestRanksLeaveSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var free, used atomic.Int64
		free.Store(900)
		w := diskWatch{
			space: func() (int64, int64, error) { return free.Load(), 10, nil },
			used:  func(context.Context) int64 { return used.Load() },
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- w.await(ctx) }()
		for _, c := range []struct{ free, used int64 }{{10 * reserves, 1000}, {10*reserves - 1, 10 * reserves}, {0, 0}} {
			free.Store(c.free)
			used.Store(c.used)
			time.Sleep(2 * countInterval)
			synctest.Wait()
			if len(ended) > 0 {
				t.Fatalf("ended with %d bytes free and %d used: %v", c.free, c.used, <-ended)
			}
		}
		free.Store(10*reserves - 1)
		used.Store(10*reserves + 1)
		if err := <-ended; outboard.KindOf(err) != outboard.Exhausted || !strings.Contains(err.Error(), "39B") || !strings.Contains(err.Error(), "41B") {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		used.Store(0)
		go func() { ended <- w.await(ctx) }()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("at the end of the ranks: %v", err)
		}
	})
}

func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	before := diskUse(t.Context(), dir)
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "c"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if used := diskUse(t.Context(), dir) - before; used < 1<<20 || used > 2<<20 {
		t.Errorf("%d bytes", used)
	}
}

// makeFolders makes folders in each other, below dir, and a file of 1 MiB in the last one, whose path may be
// longer than the kernel reads.
func makeFolders(t *testing.T, dir, name string, count int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	for i := 0; i < count && err == nil; i++ {
		var next int
		if err = unix.Mkdirat(at, name, 0o700); err == nil {
			next, err = unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(at)
		at = next
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	fd, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "file")
	defer file.Close()
	if _, err := file.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
}

// Ranks hide files in folders whose path is too long, or below more folders than are counted, and have the
// node read a link to a folder of others.
func TestDiskUseOfHiddenFiles(t *testing.T) {
	long, deep, other := t.TempDir(), t.TempDir(), t.TempDir()
	makeFolders(t, long, strings.Repeat("x", 250), 20)
	if used := diskUse(t.Context(), long); used < 1<<20 || used >= tooDeep {
		t.Errorf("%d bytes below a long path", used)
	}
	makeFolders(t, deep, "x", maxDepth+1)
	if used := diskUse(t.Context(), deep); used < tooDeep {
		t.Errorf("%d bytes below many folders", used)
	}
	if err := os.Symlink(long, filepath.Join(other, "link")); err != nil {
		t.Fatal(err)
	}
	if used := diskUse(t.Context(), other); used >= 1<<20 {
		t.Errorf("%d bytes below a link", used)
	}
}

// A folder with very many names is read in parts, and no more of them are held.
func TestDiskUseReadsNamesInParts(t *testing.T) {
	dir := t.TempDir()
	for i := range nameBatch + 1 {
		if err := os.WriteFile(filepath.Join(dir, strings.Repeat("x", 200)+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "last"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if used := diskUse(t.Context(), dir); used < 1<<20 {
		t.Errorf("%d bytes", used)
	}
}
