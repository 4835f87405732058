package shm

import (
	"runtime"
	"testing"
	"time"
)

// Waits that are long of late are slept through at once; after short ones the
// waiter looks first.
func TestPatience(t *testing.T) {
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
			var p Patience
			for _, w := range c.waits {
				p.note(w)
			}
			looked := false
			found := p.spin(func() bool { looked = true; return true })
			if looked != c.want || found != c.want {
				t.Errorf("looked %v, found %v, want %v", looked, found, c.want)
			}
		})
	}
}

// A look lasts twice as long as the waits of late, within bounds.
func TestLookFollowsWaits(t *testing.T) {
	for name, c := range map[string]struct{ wait, want time.Duration }{
		"short":  {spinLeast / 10, spinLeast},
		"longer": {spinLeast, 2 * spinLeast},
		"long":   {10 * shortWait, spinMost},
	} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
			var p Patience
			for range 20 * memory {
				p.note(c.wait)
			}
			got, done := p.look()
			done()
			if got < c.want*9/10 || got > c.want {
				t.Errorf("%v: want %v", got, c.want)
			}
		})
	}
}

// Long looks leave a processor to others.
func TestLongLooksLeaveOne(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	p := Patience{usual: shortWait}
	for i, want := range []time.Duration{spinMost, spinLeast} {
		limit, done := p.look()
		t.Cleanup(done)
		if limit != want {
			t.Errorf("look %d beside others: %v, want %v", i, limit, want)
		}
	}
}

// A look that finds nothing ends.
func TestSpinEnds(t *testing.T) {
	p := Patience{short: 1}
	if p.spin(func() bool { return false }) {
		t.Error("found what is not there")
	}
}
