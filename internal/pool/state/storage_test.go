package state_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/disktest"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// TestFullDisk fills the disk under the pool's state and frees it again, twice, under load:
// the state says so, names no paths, heals by itself and keeps what it acknowledged.
func TestFullDisk(t *testing.T) { disktest.Run(t, 24<<20, testFullDisk) }

func testFullDisk(t *testing.T, dir string) {
	s, err := state.Open(t.Context(), state.Options{
		Dir: dir, Name: "harbour", TLS: state.NoRoutes, Logger: testLog(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := s.OpenLog(t.Context(), "steps", state.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	appendOne := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		key := fmt.Sprintf("run/%d", acknowledged)
		_, err := l.Append(ctx, key, 0, make([]byte, 8<<10))
		if err == nil || errors.Is(err, state.ErrConflict) {
			acknowledged++
			return nil
		}
		return err
	}
	for range 2 {
		for range 20 {
			if err := appendOne(2 * time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Health(); err != nil {
			t.Fatal("healthy, it says:", err)
		}
		filler := disktest.Fill(t, dir)
		var failure error
		for failure == nil {
			failure = appendOne(3 * time.Second)
		}
		if strings.Contains(failure.Error(), dir) {
			t.Errorf("the error names a path: %v", failure)
		}
		waitFor(t, 2*time.Minute, "the state says that its disk is full", func() bool {
			return outboard.KindOf(s.Health()) == outboard.Exhausted
		})
		if text := s.Health().Error(); strings.Contains(text, dir) || !strings.Contains(text, "free space") {
			t.Errorf("health: %s; want the remedy and no path", text)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		waitFor(t, 2*time.Minute, "the state heals", func() bool { return appendOne(5*time.Second) == nil })
		waitFor(t, 2*time.Minute, "the state is healthy", func() bool { return s.Health() == nil })
	}
	heads, err := l.Heads(t.Context(), "run/")
	if err != nil || len(heads) != acknowledged {
		t.Errorf("%d of %d acknowledged histories are there, %v", len(heads), acknowledged, err)
	}
}

func waitFor(t *testing.T, limit time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
