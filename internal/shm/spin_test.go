package shm

import (
	"runtime"
	"testing"
	"time"
)

// Waits that are long of late are slept through at once; after short ones the
// waiter looks first.
func TestAdaptiveWait(t *testing.T) {
	const short, long = shortWait / 2, 2 * shortWait
	for name, c := range map[string]struct {
		waits []time.Duration
		want  bool
	}{
		"at first":          {nil, false},
		"short":             {[]time.Duration{short}, true},
		"short, then long":  {[]time.Duration{short, long}, false},
		"long among short":  {[]time.Duration{short, short, short, short, short, short, long}, true},
		"short after long":  {[]time.Duration{long, long, long, short}, true},
		"more long than so": {[]time.Duration{short, short, short, short, short, long, long}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var p AdaptiveWait
			for _, w := range c.waits {
				p.observe(w)
			}
			spun := false
			ready := p.spin(func() bool { spun = true; return true })
			if spun != c.want || ready != c.want {
				t.Errorf("spun %v, ready %v, want %v", spun, ready, c.want)
			}
		})
	}
}

// TestSpinFollowsWaits checks that a spin lasts twice the average wait, within bounds.
func TestSpinFollowsWaits(t *testing.T) {
	for name, c := range map[string]struct{ wait, want time.Duration }{
		"short":  {minSpin / 10, minSpin},
		"longer": {minSpin, 2 * minSpin},
		"long":   {10 * shortWait, maxSpin},
	} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
			var p AdaptiveWait
			for range 20 * smoothing {
				p.observe(c.wait)
			}
			got, done := p.spinLimit(1)
			done()
			if got < c.want*9/10 || got > c.want {
				t.Errorf("%v: want %v", got, c.want)
			}
		})
	}
}

// TestLongSpinsLeaveProcessors checks that processors remain free for other goroutines and, beside
// relays, for other processes.
func TestLongSpinsLeaveProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	p := AdaptiveWait{average: shortWait}
	for i, c := range []struct {
		spare int32
		want  time.Duration
	}{{relaySpare, minSpin}, {1, maxSpin}, {1, minSpin}} {
		limit, done := p.spinLimit(c.spare)
		if c.spare == relaySpare {
			done()
		} else {
			t.Cleanup(done)
		}
		if limit != c.want {
			t.Errorf("spin %d of several: %v, want %v", i, limit, c.want)
		}
	}
}

// TestSpinEnds checks that a spin whose condition never holds ends.
func TestSpinEnds(t *testing.T) {
	p := AdaptiveWait{short: 1}
	if p.spin(func() bool { return false }) {
		t.Error("found what is not there")
	}
}

// TestSpinIsMeasured checks that waits use what was shorter lately, and follow a change.
func TestSpinIsMeasured(t *testing.T) {
	const waits = 10_000
	var p AdaptiveWait
	// run returns how many of the waits spun, of which each takes one duration or the other.
	run := func(spinning, sleeping time.Duration) (spun int) {
		for range waits {
			p.spin(func() bool { return true })
			if p.spins {
				spun++
				p.observe(spinning)
			} else {
				p.observe(sleeping)
			}
		}
		return spun
	}
	if spun := run(20*time.Microsecond, 50*time.Microsecond); spun < waits-2*waits/trySleepEvery {
		t.Errorf("an idle machine: %d of %d waits spun", spun, waits)
	}
	if spun := run(190*time.Microsecond, 60*time.Microsecond); spun > 2*waits/trySpinEvery {
		t.Errorf("a busy machine: %d of %d waits spun", spun, waits)
	}
	if spun := run(20*time.Microsecond, 50*time.Microsecond); spun < waits/2 {
		t.Errorf("idle again: %d of %d waits spun", spun, waits)
	}
}
