package launch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
