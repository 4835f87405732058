package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The smallest version is built first, two at a time, and small ones beside large ones.
func TestBuildQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b buildQueue
		var began []int64
		for _, size := range []int64{100, 90, 30, 80, 22, 6, 5} {
			go func() {
				if err := b.acquire(t.Context(), size); err != nil {
					t.Error(err)
				}
				b.mu.Lock()
				began = append(began, size)
				b.mu.Unlock()
				time.Sleep(time.Duration(size) * time.Second)
				b.release(size)
			}()
			synctest.Wait() // they come in this order
		}
		// 22 is not a fourth of 90's; 6 is, and 5 is not a fourth of 6.
		if diff := cmp.Diff(began, []int64{100, 90, 22, 5}); diff != "" {
			t.Error(diff)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if diff := cmp.Diff(began, []int64{100, 90, 22, 5, 6, 30, 80}); diff != "" {
			t.Error(diff)
		}
		if len(b.running)+len(b.waiting) > 0 {
			t.Errorf("%+v is left", b.running)
		}
	})
}

// A build that is withdrawn frees its place.
func TestWithdrawnBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b buildQueue
		for range concurrentBuilds {
			if err := b.acquire(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- b.acquire(ctx, 10) }()
		synctest.Wait()
		cancel()
		if err := <-left; err == nil || len(b.waiting) > 0 {
			t.Errorf("%v, %d wait", err, len(b.waiting))
		}
		b.release(10)
		b.release(10)
		if err := b.acquire(t.Context(), 10); err != nil || len(b.running) != 1 {
			t.Errorf("%v, %v", err, b.running)
		}
	})
}
