package opencl

import (
	"testing"
	"time"
)

// TestFastClock: it reads what the system call reads.
func TestFastClock(t *testing.T) {
	clock := newFastClock()
	for range 100 {
		before := time.Duration(monotonic())
		now := clock.now()
		if after := time.Duration(monotonic()); now < before-clock.uncertainty || now > after+clock.uncertainty {
			t.Fatalf("%v between %v and %v, with an uncertainty of %v", now, before, after, clock.uncertainty)
		}
	}
}

func BenchmarkClock(b *testing.B) {
	clock := newFastClock()
	b.Run("fast", func(b *testing.B) {
		for b.Loop() {
			clock.now()
		}
	})
	b.Run("system call", func(b *testing.B) {
		for b.Loop() {
			monotonic()
		}
	})
}
